"""Which findings count: `--select`, `--ignore` and ignores with a reason, by prefix of the code, the longest first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from cudagraph_doctor.findings import Accepted, Report, Status
from cudagraph_doctor.rules import RULES

TARGET, PYPROJECT, COMMAND_LINE = "target", "pyproject.toml", "command line"
_NEARER = (TARGET, PYPROJECT, COMMAND_LINE)
"""Of equally long prefixes the one that comes later here decides."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One prefix that was named somewhere."""

    prefix: str
    where: str
    """TARGET, PYPROJECT or COMMAND_LINE."""
    ignores: bool
    reason: str = ""

    @property
    def rank(self) -> tuple[int, int, bool]:
        """The entry with the highest one decides: the longest, the nearest, and of two in one place the ignore."""
        return len(self.prefix), _NEARER.index(self.where), self.ignores


def prefixes(texts: Iterable[str]) -> tuple[str, ...]:
    """`CGD1,CGD201`, repeated. Raises ValueError, in words, on what no code begins with."""
    return tuple(dict.fromkeys(_prefix(part) for text in texts for part in text.split(",")))


def _prefix(text: str) -> str:
    prefix = text.strip().upper()
    if not prefix or not any(code.startswith(prefix) for code in RULES):
        raise ValueError(f'no rule\'s code begins with "{text}"; `cudagraph-doctor rules` lists them.')
    return prefix


def reasoned(table: object, where: str) -> tuple[Entry, ...]:
    """Ignores from a mapping of prefixes to reasons. Raises ValueError, in words, if it is none, or lacks a reason."""
    if not isinstance(table, Mapping):
        raise ValueError(
            f'it is a {type(table).__name__}, not a table of codes with a reason each: {{"CGD217": "..."}}.'
        )
    entries = []
    for key, reason in table.items():
        prefix = _prefix(str(key))
        if not isinstance(reason, str) or not reason.strip():
            raise ValueError(f'"{key}" has no reason: say why it may be ignored.')
        entries.append(Entry(prefix, where, True, " ".join(reason.split())))
    return tuple(entries)


@dataclass(frozen=True, slots=True)
class Selection:
    """All entries together."""

    entries: tuple[Entry, ...] = ()

    def why_not(self, code: str) -> Accepted | None:
        """Why findings of this code do not count; None if they do."""
        matching = [entry for entry in self.entries if code.startswith(entry.prefix)]
        if matching:
            decides = max(matching, key=lambda entry: entry.rank)
            return Accepted("ignored", decides.where, decides.reason) if decides.ignores else None
        selecting = [entry.where for entry in self.entries if not entry.ignores]
        return Accepted("not selected", selecting[0]) if selecting else None

    def unused(self, report: Report) -> Iterator[str]:
        """The ignores that nothing was ignored by, though all that they name was looked for to the end."""
        done = [outcome for outcome in report.outcomes if outcome.status in (Status.PASSED, Status.FOUND)]
        evaluated = {code for outcome in done for code in outcome.rules}
        found = {finding.code for finding in report.findings}
        for entry in self.entries:
            named = {code for code in RULES if code.startswith(entry.prefix)}
            if entry.ignores and named <= evaluated and not named & found:
                reason = f" ({entry.reason})" if entry.reason else ""
                yield f"the ignore of {entry.prefix} in the {entry.where}{reason}: this run found nothing that it names"
