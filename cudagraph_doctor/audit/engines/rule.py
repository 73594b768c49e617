"""A default rule: how one version of an engine makes its list of sizes when the configuration gives none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cudagraph_doctor.errors import UsageError
from cudagraph_doctor.spec import near


@dataclass(frozen=True, slots=True)
class Rule:
    """One version's rule."""

    name: str
    """What `--rule` takes."""
    version: str
    """Of which version or date it is, in words."""
    source: str
    """Where it was read: a URL."""
    sizes: Callable[[Any], tuple[int, ...]]
    """The engine's own record of settings -> sizes, ascending."""
    released: bool = True
    """False: only proposed; nobody runs it without knowing."""

    @property
    def words(self) -> str:
        """Version and source."""
        return f"{self.version}; {self.source}"


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line says beside the file."""

    rule: str = ""
    """The rule that was named, "" for none."""
    max_batch: int | None = None


def choose(rules: Sequence[Rule], asked: Asked, engine: str) -> Rule:
    """The rule that was named, else the last. Raises UsageError if the engine has none of that name."""
    if not asked.rule:
        return rules[-1]
    for rule in rules:
        if rule.name == asked.rule:
            return rule
    names = [rule.name for rule in rules]
    raise UsageError(
        f'{engine} has no default rule "{asked.rule}".{near(asked.rule, names)}', fix=f"Known: {', '.join(names)}."
    )


def steps(*stretches: tuple[int, int, int], most: int) -> tuple[int, ...]:
    """All of `range(first, end, step)` up to `most`, ascending, each once."""
    return tuple(sorted({n for first, end, step in stretches for n in range(first, min(end, most + 1), step)}))
