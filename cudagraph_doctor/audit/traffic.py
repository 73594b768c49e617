"""What a workload meets in a set of keys: hits, padding, eager steps, and the time of each."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from cudagraph_doctor.audit.costs import Costs
from cudagraph_doctor.audit.keys import KeySet, Mode, Served


@dataclass(frozen=True, slots=True)
class Met:
    """All steps of one size."""

    size: int
    steps: float
    """Their number, or weight."""
    served: Served
    hit: bool
    """A full replay; piecewise counts where the set has no full graphs."""
    ms: float
    """The time of one such step."""
    exact_ms: float
    """What it would take in a key of its own size."""

    @property
    def padding(self) -> int:
        """Rows of the key without a request; 0 without a key."""
        return 0 if self.served.key is None else self.served.key - self.size


@dataclass(frozen=True, slots=True)
class Traffic:
    """All steps of a workload against one set of keys."""

    keys: KeySet
    met: tuple[Met, ...]

    @property
    def steps(self) -> float:
        """How many, weights added up."""
        return _sum(m.steps for m in self.met)

    @property
    def hit_rate(self) -> float:
        """Share of the steps."""
        return self.share(lambda m: m.hit)

    @property
    def eager_share(self) -> float:
        """Share of the steps without any graph."""
        return self.share(lambda m: m.served.key is None)

    @property
    def padding_share(self) -> float | None:
        """Padding rows as a share of the rows of all replayed keys; None without a hit."""
        rows = _sum(m.steps * m.served.key for m in self.met if m.hit and m.served.key)
        return _sum(m.steps * m.padding for m in self.met if m.hit) / rows if rows else None

    @property
    def ms(self) -> float:
        """Time of all steps."""
        return _sum(m.steps * m.ms for m in self.met)

    @property
    def padding_ms(self) -> float:
        """Time that the rows of padding take in replays."""
        return _sum(m.steps * max(0.0, m.ms - m.exact_ms) for m in self.met if m.hit)

    @property
    def eager_ms(self) -> float:
        """Time of the eager steps."""
        return _sum(m.steps * m.ms for m in self.met if m.served.key is None)

    @property
    def eager_extra_ms(self) -> float:
        """What the eager steps take longer than replays in keys of their own size."""
        return _sum(m.steps * max(0.0, m.ms - m.exact_ms) for m in self.met if m.served.key is None)

    def share(self, which: Callable[[Met], bool]) -> float:
        """Share of the steps for which it holds; 0 of none."""
        total = self.steps
        return _sum(m.steps for m in self.met if which(m)) / total if total else 0.0


def meet(steps: Mapping[int, float], keys: KeySet, costs: Costs) -> Traffic:
    """Run a workload, in the unit of the keys, against them."""
    met = []
    for size in sorted(steps):
        served = keys.serve(size)
        hit = served.mode is Mode.FULL or (served.mode is Mode.PIECEWISE and not keys.full)
        ms = costs.eager_ms(size) if served.key is None else costs.replay(served.key).at(size)
        met.append(Met(size, steps[size], served, hit, ms, costs.replay(size).at(size)))
    return Traffic(keys, tuple(met))


def _sum(numbers: Iterable[float]) -> float:
    return math.fsum(numbers)
