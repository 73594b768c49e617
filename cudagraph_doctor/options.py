"""Reads command-line values: sizes, `name=value`, bounds, formats. Each raises ValueError, in words for the user."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cudagraph_doctor.report import REPORTERS
from cudagraph_doctor.settings import Tolerance
from cudagraph_doctor.spec import near


def sizes(text: str | None) -> tuple[int, ...]:
    """`1,2,4` as integers >= 1."""
    if text is None:
        return ()
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f'"{text}" is no list of integers; write 1,2,4.') from None
    if min(found) < 1:
        raise ValueError(f"{min(found)} is below 1.")
    return found


def pairs(texts: Iterable[str]) -> dict[str, str]:
    """`name=value`, repeated."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise ValueError(f'"{text}" is not of the form name=value.')
        if name in found:
            raise ValueError(f'"{name}" is given twice.')
        found[name] = value
    return found


def bounds(texts: Iterable[str]) -> dict[str, float]:
    """`0.01` for all outputs (key ""), `logits=0.01` for one."""
    found: dict[str, float] = {}
    for text in texts:
        name, equals, number = text.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            value = -1.0
        if not 0 <= value < float("inf") or (equals and not name):
            raise ValueError(f'"{text}" is no bound; write 0.01, or OUTPUT=0.01.')
        if name in found:
            raise ValueError(f"two bounds for {name or 'all outputs'}.")
        found[name] = value
    return found


def seconds(value: float) -> float:
    """A time above 0 that ends: click's ranges let NaN and infinity pass."""
    if not 0 < value < math.inf:
        raise ValueError(f"{value:g} is no number of seconds above 0; write 1800.")
    return value


def tolerances(rtol: dict[str, float], atol: dict[str, float]) -> dict[str, Tolerance]:
    """Both bounds by output; the one that is not given for an output is that for all outputs, else 0."""
    return {
        name: Tolerance(rtol.get(name, rtol.get("", 0.0)), atol.get(name, atol.get("", 0.0)))
        for name in {**rtol, **atol}
    }


@dataclass(frozen=True, slots=True)
class Output:
    """One rendering that was asked for."""

    format: str
    file: Path | None
    """None: stdout."""


BESIDE = "github"
"""Goes to stdout together with the terminal's text: its lines are read by the CI and left alone by people."""


def outputs(texts: Iterable[str]) -> tuple[Output, ...]:
    """`terminal`, `json`, `json=FILE`, repeated. The terminal's text goes to stdout unless another format does.

    Annotations for GitHub do not take its place, they come below it: but where a file is named for the text.
    """
    found: list[Output] = []
    for text in texts:
        name, equals, file = text.partition("=")
        if name not in REPORTERS:
            known = ", ".join(REPORTERS)
            raise ValueError(f'there is no format "{name}".{near(name, REPORTERS)} Known: {known}.')
        found.append(Output(name, _writable(file) if equals else None))
    found.sort(key=lambda output: output.format == BESIDE)
    to_stdout = [output.format for output in found if output.file is None]
    text_in_file = any(output.format == "terminal" for output in found)
    if not to_stdout or (to_stdout == [BESIDE] and not text_in_file):
        return (Output("terminal", None), *found)
    if len(to_stdout) > 1 and to_stdout != ["terminal", BESIDE]:
        raise ValueError(f"{' and '.join(to_stdout)} would both go to stdout; give one a file: FORMAT=FILE.")
    return tuple(found)


def _writable(file: str) -> Path:
    """Refuse now what could not be written after a long run; nothing is created yet."""
    path = Path(file)
    if not file or path.is_dir():
        raise ValueError(f'"{file}" is no file to write to.')
    if not path.parent.is_dir():
        raise ValueError(f'the folder "{path.parent}" does not exist.')
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ValueError(f'"{file}" cannot be written (no permission).')
    return path
