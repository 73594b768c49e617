"""Which batches are played: of each key the full one, one row less, and the smallest that it serves."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

from cudagraph_doctor import returned
from cudagraph_doctor.errors import Inconclusive
from cudagraph_doctor.proof.engine import EngineSubject
from cudagraph_doctor.proof.loop import LoopSubject
from cudagraph_doctor.proof.subject import Planned
from cudagraph_doctor.settings import Settings


@dataclass(frozen=True, slots=True)
class Key:
    """One key, with the steps that are played under it."""

    size: int
    steps: tuple[Planned, ...]
    """Largest batch first."""

    @property
    def exact(self) -> Planned:
        """The step with the most rows."""
        return self.steps[0]

    @property
    def smallest(self) -> Planned:
        """The step with the fewest."""
        return self.steps[-1]


def planned(subject: LoopSubject | EngineSubject, settings: Settings) -> tuple[list[Key], list[Planned]]:
    """The keys, the largest first, and all steps that a graph serves in the order in which they are played.

    Raises:
        TargetError: the target has no such key.
        Inconclusive: none of the target's batches has a key that is, or begins with, a number.
    """
    if isinstance(subject, EngineSubject):
        found = subject.plan(0, settings.buckets, settings.batch_sizes, True)
        order = sorted({at.rows for at in found}, reverse=True)
    else:
        buckets = sorted(subject.target.buckets)
        subject.plan(1, settings.buckets, (), True)  # refuses keys that there are none of
        order = []
        for key in sorted(settings.buckets or buckets, reverse=True):
            least = 1 + max((other for other in buckets if other < key), default=0)
            order += dict.fromkeys((key, max(key - 1, least), least))
    played = [at for at in subject.plan(0, (), order, True) if at.rows and number(at.key) is not None]
    steps = [replace(at, index=i, interlude="") for i, at in enumerate(played)]
    if not steps:
        raise Inconclusive(
            "no batch of the target has a key that tells its size",
            seen=f"batches of {', '.join(map(str, sorted(order)))} rows",
            fix="let key(i, n) return the size of the graph, or a tuple that begins with it",
        )
    if isinstance(subject, LoopSubject):
        subject.check_contract(steps)
    return keys_of(steps), steps


def keys_of(steps: Sequence[Planned]) -> list[Key]:
    """The keys of these steps, the largest first."""
    by_size: dict[int, list[Planned]] = {}
    for at in steps:
        by_size.setdefault(number(at.key) or 0, []).append(at)
    return [
        Key(size, tuple(sorted(some, key=lambda at: -at.rows))) for size, some in sorted(by_size.items(), reverse=True)
    ]


def first_steps(subject: LoopSubject | EngineSubject, keys: Sequence[Key], index: int) -> list[Planned]:
    """The first step of a run, with the full and with the smallest batch of each key.

    Args:
        subject: the target.
        keys: which.
        index: positions in the plan count from it.
    """
    rows = [(key, rows) for key in keys for rows in dict.fromkeys((key.exact.rows, key.smallest.rows))]
    engine = isinstance(subject, EngineSubject)
    return [
        Planned(index + i, 0, n, returned.key(subject.target, 0, n) if engine else key.exact.key)
        for i, (key, n) in enumerate(rows)
    ]


def number(key: Hashable) -> int | None:
    """The size in a key: the key itself, or what it begins with; None without one."""
    first = key[0] if isinstance(key, tuple) and key else key
    return first if isinstance(first, int) and not isinstance(first, bool) else None
