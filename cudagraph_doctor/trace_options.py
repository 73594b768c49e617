"""Options of `buckets` and `record` -> plain values, and an older report -> the numbers to compare with."""

from __future__ import annotations

from pathlib import Path

from cudagraph_doctor.errors import UsageError
from cudagraph_doctor.report.json import load

MAX_FRACTION = 1.0


def fraction(text: str | None) -> float | None:
    """`0.95` or `95%` as 0.95. Raises ValueError in words."""
    if text is None:
        return None
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value <= MAX_FRACTION:
        raise ValueError(f'"{text}" is no share; write 0.95 or 95%.')
    return value


def pattern(text: str | None) -> str:
    """A pattern as it is, "" if there is none. Raises ValueError, in words, if it is there and empty."""
    if text == "":
        raise ValueError("an empty pattern fits every label; write one for your steps, or leave it out.")
    return text or ""


def older_numbers(file: Path | None) -> dict[str, float] | None:
    """The numbers of a saved `buckets` report, by name. Raises UsageError if it is none."""
    if file is None:
        return None
    outcome = next((o for o in load(file).outcomes if o.check == "buckets"), None)
    summary = outcome.checked.get("summary") if outcome else None
    try:
        from cudagraph_doctor.misses.gates import numbers

        if summary is None:
            raise KeyError("summary")
        return numbers(summary)
    except (KeyError, TypeError, AttributeError):
        raise UsageError(
            f'"{file}" is no report of `buckets`.',
            fix="Give a file written by `cudagraph-doctor buckets TRACE --format json=FILE`.",
        ) from None
