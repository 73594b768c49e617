"""The report as JSON: the product's artifact, read back by `cudagraph-doctor report` (see `load`)."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

from cudagraph_doctor.errors import UsageError
from cudagraph_doctor.findings import SCHEMA_VERSION, Report, report_from_json, to_json
from cudagraph_doctor.report.view import View

_FIX = "Give a file that cudagraph-doctor wrote: `diff SPEC --format json=FILE`, `buckets TRACE --format json=FILE`."


def render(report: Report, view: View) -> str:
    """`schema_version` first, then the report's fields; a newline at the end."""
    plain = finite(to_json(report))
    ordered = {"schema_version": plain.pop("schema_version"), **plain}
    return json.dumps(ordered, indent=2, ensure_ascii=False, allow_nan=False, default=str) + "\n"


def finite(value: Any) -> Any:
    """NaN and infinities as strings: JSON has no numbers for them, and other programs refuse Python's."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    return [finite(item) for item in value] if isinstance(value, list) else value


def load(path: Path) -> Report:
    """Read a saved report. Raises UsageError if it is none, is cut short, or is of a newer version."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f'The report "{path}" cannot be read: {error.strerror}.', fix=_FIX) from None
    except UnicodeDecodeError:
        raise UsageError(f'"{path}" is no text file.', fix=_FIX) from None
    except json.JSONDecodeError as error:
        raise UsageError(
            f'"{path}" is no complete JSON: line {error.lineno}, column {error.colno} does not parse.',
            seen=f"{error.msg}, at {_short(error.doc[error.pos : error.pos + 40]) or 'the end of the file'}",
            fix=_FIX,
        ) from None
    except (ValueError, RecursionError) as error:  # a number too long, brackets too deep
        raise UsageError(f'"{path}" is JSON that cannot be read.', seen=str(error), fix=_FIX) from None
    version = data.get("schema_version") if isinstance(data, dict) else None
    if not isinstance(version, int):
        raise UsageError(f'"{path}" is JSON, but no report of cudagraph-doctor: it has no schema_version.', fix=_FIX)
    if version > SCHEMA_VERSION:
        raise UsageError(
            f'"{path}" has schema_version {version}; this version reads up to {SCHEMA_VERSION}.',
            fix="Upgrade cudagraph-doctor: `pip install .` in a newer checkout.",
        )
    try:
        return report_from_json(data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f'"{path}" is no whole report of cudagraph-doctor.', seen=_in_words(error), fix=_FIX) from None


def _in_words(error: Exception) -> str:
    """What is wrong with the fields, from what the constructors of `findings.py` raise."""
    if isinstance(error, KeyError):
        return f'the field "{error.args[0]}" is missing'
    if match := re.search(r"unexpected keyword argument '(\w+)'", str(error)):
        return f'the field "{match[1]}" is not one that a report has'
    if match := re.search(r"missing \d+ required positional arguments?: (.+)", str(error)):
        return f"fields are missing: {match[1]}"
    if match := re.fullmatch(r"(.+) is not a valid (\w+)", str(error)):
        return f"{match[1]} is no {match[2].lower()} that a report has"
    return "a field holds something of another type than a report has there"


def _short(text: str) -> str:
    return repr(text.splitlines()[0]) if text.strip() else ""
