"""`[tool.cudagraph-doctor]` in the working directory's pyproject.toml -> what the command line would say.

Keys are the long options without their dashes, and `spec`; `ignore` is a table of codes with a reason each. A key
counts for every command that has the option; what is given on the command line wins. Paths are as on the command line
too: relative to the working directory, which is the file's own folder.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cudagraph_doctor.errors import UsageError
from cudagraph_doctor.gate import selection
from cudagraph_doctor.gate.selection import Entry
from cudagraph_doctor.spec import near

FILE = "pyproject.toml"
TABLE = "tool.cudagraph-doctor"


@dataclass(frozen=True, slots=True)
class Key:
    """An option that can be set in the file."""

    flag: bool = False
    repeatable: bool = False


@dataclass(frozen=True, slots=True)
class Configuration:
    """The table, read. Without a table everything is empty."""

    values: Mapping[str, str | bool | list[str]] = field(default_factory=dict)
    """Key -> what the command line would say; lists for repeatable options."""
    ignores: tuple[Entry, ...] = ()
    file: str = ""
    """The file that has the table; "" if none has."""


def read(keys: Mapping[str, Key], folder: Path = Path()) -> Configuration:
    """Read the table. Raises UsageError if the file does not parse, or a key or a value is none that there is.

    Args:
        keys: the keys that there are.
        folder: the working directory.
    """
    file = folder / FILE
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Configuration()
    except OSError as error:
        raise UsageError(f"{FILE} cannot be read: {error.strerror}.", fix="Mend its permissions.") from None
    except ValueError as error:  # TOML or UTF-8
        raise UsageError(f"{FILE} does not parse: {error}.", fix="Mend that line.") from None
    table = data.get("tool", {}).get("cudagraph-doctor") if isinstance(data.get("tool", {}), dict) else None
    if table is None:
        return Configuration()
    if not isinstance(table, dict):
        raise UsageError(f"{TABLE} in {FILE} is no table.", fix=f"Write [{TABLE}] and a key = value on each line.")
    ignores = _ignores(table.pop("ignore", {}))
    return Configuration({name: _value(name, value, keys) for name, value in table.items()}, ignores, str(file))


def _ignores(table: Any) -> tuple[Entry, ...]:
    try:
        return selection.reasoned(table, selection.PYPROJECT)
    except ValueError as error:
        raise UsageError(
            f"ignore in [{TABLE}] is not usable: {error}",
            fix=f'Write [{TABLE}.ignore], and below it lines such as CGD217 = "why this may be ignored".',
        ) from None


def _value(name: str, value: Any, keys: Mapping[str, Key]) -> str | bool | list[str]:
    if name not in keys:
        hint = near(name.replace("_", "-"), keys)
        raise UsageError(
            f'[{TABLE}] in {FILE} has the key "{name}", which there is not.{hint}',
            fix=f"Known keys: {', '.join(sorted([*keys, 'ignore']))}.",
        )
    key = keys[name]
    if key.flag != isinstance(value, bool):
        wanted = "true or false" if key.flag else "a text, a number or a list"
        raise UsageError(f"{name} in [{TABLE}] is {value!r}.", fix=f"Give it {wanted}.")
    if key.flag:
        return bool(value)
    if isinstance(value, dict):
        words = [f"{inner}={_word(name, item)}" for inner, item in value.items()]
    else:
        words = [_word(name, item) for item in value] if isinstance(value, list) else [_word(name, value)]
    return words if key.repeatable else ",".join(words)


def _word(name: str, value: Any) -> str:
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return str(value)
    raise UsageError(f"{name} in [{TABLE}] holds {value!r}.", fix="Give it texts and numbers.")
