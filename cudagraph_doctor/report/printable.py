"""Text from elsewhere (a target's exception, a label) as a terminal may have it: control characters as escapes."""

from __future__ import annotations

import dataclasses
import re
from enum import Enum
from typing import Any, TypeVar

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""All but tabs and newlines: they could move the cursor, recolor or retitle the terminal, or hide what was printed."""

_T = TypeVar("_T")


def printable(text: str) -> str:
    r"""`\x1b[31m` for the characters that make a terminal red; tabs and newlines stay."""
    return _CONTROLS.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def all_printable(value: _T) -> _T:
    """A copy of a report, or of any part of it, with printable texts."""
    copied: _T = _copy(value)
    return copied


def _copy(value: Any) -> Any:
    if isinstance(value, Enum):
        return value
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {_copy(key): _copy(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_copy, value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.replace(value, **{f.name: _copy(getattr(value, f.name)) for f in dataclasses.fields(value)})
    return value
