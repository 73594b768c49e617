"""The options of a configuration, taken one by one with their types; what nobody takes is known in the end."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from cudagraph_doctor.errors import UsageError
from cudagraph_doctor.spec import near

MOST = 1_000_000
"""Sizes above it are taken for mistakes."""
_TELLING = ("graph", "capture", "bucket")
"""An unknown option with one of these in its name may decide about keys: it is refused, not skipped."""


class Fields:
    """One section of a configuration. Dashes and underscores in names are the same."""

    def __init__(self, where: str, given: Mapping[str, Any]) -> None:
        """Take the options of a section.

        Args:
            where: the file's name, for errors.
            given: names and values.
        """
        self.where = where
        self._left = {str(name).replace("-", "_"): value for name, value in given.items()}
        self._known: list[str] = []

    def take(self, *names: str) -> Any:
        """The value of the first of `names` that is there, None if none is; all of them count as known."""
        self._known += names
        found = [self._left.pop(name) for name in names if name in self._left]
        return next((value for value in found if value is not None), None)

    def has(self, name: str) -> bool:
        """Whether an option is there and not taken yet."""
        return name in self._left

    def names(self) -> tuple[str, ...]:
        """Names of the options that are not taken yet."""
        return tuple(self._left)

    def integer(self, *names: str, least: int = 1) -> int | None:
        """A whole number. Raises UsageError if it is something else or below `least`."""
        value = self.take(*names)
        if value is None:
            return None
        if isinstance(value, str) and value.strip().isdigit():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST:
            raise self.error(names[0], value, f"a whole number from {least} to {MOST}")
        return value

    def flag(self, *names: str) -> bool | None:
        """True or False. Raises UsageError for anything else."""
        value = self.take(*names)
        if value is None or isinstance(value, bool):
            return value
        raise self.error(names[0], value, "true or false")

    def word(self, *names: str) -> str | None:
        """A text. Raises UsageError for anything else."""
        value = self.take(*names)
        if value is None or isinstance(value, str):
            return value
        raise self.error(names[0], value, "a word")

    def sizes(self, *names: str, least: int = 1) -> tuple[int, ...] | None:
        """A list of whole numbers, in its own order, duplicates kept. Raises UsageError for anything else."""
        value = self.take(*names)
        if value is None:
            return None
        if isinstance(value, str):
            value = value.replace(",", " ").split()
            value = [int(part) if part.isdigit() else part for part in value]
        if not isinstance(value, list | tuple) or not value:
            raise self.error(names[0], value, "a list of whole numbers such as [1, 2, 4, 8], not empty")
        for size in value:
            if isinstance(size, bool) or not isinstance(size, int) or not least <= size <= MOST:
                raise self.error(names[0], size, f"whole numbers from {least} to {MOST}")
        return tuple(value)

    def section(self, *names: str) -> Fields | None:
        """A section of its own, also where it is written as JSON in a text. Raises UsageError if it is none."""
        value = self.take(*names)
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except ValueError:
                raise self.error(names[0], value, "a section, or JSON text of one") from None
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.error(names[0], value, "a section of options")
        return Fields(f"{self.where}: {names[0]}", value)

    def rest(self, ignored: Iterable[str] = (), *, strict: bool = False) -> tuple[str, ...]:
        """Names of the options that nobody took.

        Raises UsageError for one that may decide about keys (its name says so, and it is not in `ignored`), or is next
        to a known one; with `strict`, for any.
        """
        for name in self._left:
            telling = any(part in name.lower() for part in _TELLING)
            if name not in ignored and (strict or telling or near(name, self._known, cutoff=0.85)):
                raise UsageError(
                    f'{self.where} has an option "{name}" that the audit does not know.{near(name, self._known)}',
                    fix=f"Known here: {', '.join(sorted(set(self._known)))}. Correct it, or take it out.",
                )
        return tuple(self._left)

    def error(self, name: str, value: object, wanted: str) -> UsageError:
        """The error that a value is not what it should be."""
        return UsageError(
            f'{self.where}: "{name}" is no value of its kind.', seen=_short(value), fix=f"Write {wanted}."
        )


def tidy(sizes: Iterable[int]) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The sizes ascending, each once; and what was odd about them."""
    given = tuple(sizes)
    unique = tuple(sorted(set(given)))
    said = []
    twice = sorted({size for size in given if given.count(size) > 1}) if len(given) > len(unique) else []
    if twice:
        said.append(f"{', '.join(map(str, twice))}: listed more than once")
    once = tuple(dict.fromkeys(given))
    if once not in (unique, unique[::-1]):
        said.append(f"not in order: {', '.join(map(str, once[:12]))}{', ...' if len(once) > 12 else ''}")
    return unique, tuple(said)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
