"""`--show-settings`: what holds for a command, each value with the place that it comes from. Can be pasted as TOML."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cudagraph_doctor.gate.selection import Entry
from cudagraph_doctor.options import Output
from cudagraph_doctor.pyproject import TABLE


@dataclasses.dataclass(frozen=True, slots=True)
class Shown:
    """One setting."""

    key: str
    value: Any
    where: str
    """"command line" | "pyproject.toml" | "default"."""
    settable: bool = True
    """Whether it can stand in the file."""


def text(settings: Iterable[Shown], ignores: Iterable[Entry], file: str) -> str:
    """The table; what is unset is left out, and what is for a single run is a remark.

    Args:
        settings: in the order in which they are to be shown.
        ignores: those of pyproject.toml.
        file: the file that was read, "" if none has the table.
    """
    lines = [f"# {file}" if file else "# no pyproject.toml with this table in the working directory", f"[{TABLE}]"]
    lines += [
        f"{'' if shown.settable else '# '}{shown.key} = {_toml(shown.value)}  # {shown.where}"
        for shown in settings
        if shown.value not in (None, "", (), {}, []) and (shown.settable or shown.where != "default")
    ]
    reasons = [f"{entry.prefix} = {json.dumps(entry.reason, ensure_ascii=False)}" for entry in ignores]
    if reasons:
        lines += ["", f"[{TABLE}.ignore]", *reasons]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(str(key))} = {_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, Output):
        return json.dumps(f"{value.format}={value.file}" if value.file else value.format)
    if isinstance(value, Path | str):
        return json.dumps(str(value), ensure_ascii=False)
    return "[" + ", ".join(map(_toml, value)) + "]"
