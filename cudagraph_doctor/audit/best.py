"""The cheapest list of keys for a workload: dynamic programming over the sizes, for k graphs or within a memory budget.

A batch runs in the smallest key that holds it, as engines do. The largest size is always a key, so that no list has a
hole. Lists are optimal over the candidates: the sizes of the workload, those that costs are known for, and the largest.
Of more than a few thousand sizes, those are candidates that divide the steps evenly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cudagraph_doctor.audit.costs import Costs

_CANDIDATES = 2048
_CELLS = 1 << 28
"""Size of the largest table of a memory budget: sizes squared, times the steps that the budget is counted in."""
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Best:
    """One list."""

    keys: tuple[int, ...]
    cost_ms: float
    """Time of the whole workload: the sum over its steps."""
    exact: bool = True
    """False: a slightly cheaper one may exist: memory was rounded up to count it, or not all sizes were candidates."""


@dataclass(frozen=True, slots=True)
class _Problem:
    sizes: NDArray[np.int64]
    """Candidates, ascending."""
    weight: Floats
    """Steps with a size up to each candidate."""
    rows: Floats
    """Rows of these steps."""
    at_zero: Floats
    """Of the candidates' replay lines."""
    a_row: Floats
    exact: bool
    """Whether all sizes are candidates."""

    def span(self, last: int) -> Floats:
        """Time of all steps above candidate i and up to `last`, run in `last`, for each i < last."""
        weight = self.weight[last] - self.weight[:last]
        rows = self.rows[last] - self.rows[:last]
        spent: Floats = self.at_zero[last] * weight + self.a_row[last] * rows
        return spent

    def alone(self, last: int) -> float:
        """Time of all steps up to `last`, run in it."""
        return float(self.at_zero[last] * self.weight[last] + self.a_row[last] * self.rows[last])


def cost_ms(keys: Sequence[int], steps: Mapping[int, float], costs: Costs) -> float:
    """Time of all steps under a list that holds each of them."""
    ascending = sorted(keys)
    lines = [costs.replay(key) for key in ascending]
    at = np.searchsorted(ascending, list(steps))
    return math.fsum(w * lines[i].at(size) for i, (size, w) in zip(at, steps.items(), strict=True))


def curve(steps: Mapping[int, float], largest: int, most: int, costs: Costs, multiple: int = 1) -> list[Best]:
    """The best lists of up to 1, 2, ... `most` keys, as far as more keys help.

    Args:
        steps: size -> number of steps (or weight) of that size; sizes up to `largest`.
        largest: the size that must be served.
        most: how many keys to try.
        costs: what replays take.
        multiple: keys have to be multiples of it (tokens a request).
    """
    problem = _problem(steps, largest, costs, multiple)
    n = len(problem.sizes)
    best = np.array([problem.alone(j) for j in range(n)])
    spans = [problem.span(j) for j in range(n)]
    before: list[NDArray[np.int64]] = [np.full(n, -1)]
    found = [Best((int(problem.sizes[-1]),), float(best[-1]), problem.exact)]
    for _ in range(1, min(most, n)):
        further, came = np.full(n, np.inf), np.full(n, -1)
        for j in range(1, n):
            total = best[:j] + spans[j]
            came[j] = i = int(np.argmin(total))
            further[j] = total[i]
        before.append(came)
        best = further
        if best[-1] < found[-1].cost_ms:
            found.append(Best(_walk(problem, before), float(best[-1]), problem.exact))
    return found


def within(steps: Mapping[int, float], largest: int, budget: int, costs: Costs, multiple: int = 1) -> Best | None:
    """The best list whose graphs take no more than `budget` bytes in one pool; None if the largest alone takes more.

    Raises ValueError if the memory of the keys is not known.
    """
    problem = _problem(steps, largest, costs, multiple)
    each = [costs.graph_bytes(int(size)) for size in problem.sizes]
    if any(size is None for size in each):
        raise ValueError("the memory of the keys is not known")
    taken = [int(size or 0) for size in each]
    left = budget - (costs.pool_bytes(largest) or 0)
    unit = math.gcd(*taken) or 1
    steps_of_budget = max(128, _CELLS // len(taken) ** 2)
    exact = left // unit <= steps_of_budget
    if not exact:
        unit = max(1, -(-left // steps_of_budget))
    room = left // unit
    units = [-(-size // unit) for size in taken]
    n = len(taken)
    if left < 0 or units[-1] > room:
        return None
    best = np.full((n, room + 1), np.inf)
    came = np.full((n, room + 1), -1)
    for j in range(n):
        if units[j] > room:
            continue
        best[j, units[j] :] = problem.alone(j)
        if j:
            totals = best[:j, : room + 1 - units[j]] + problem.span(j)[:, None]
            i = np.argmin(totals, axis=0)
            cheapest = np.take_along_axis(totals, i[None], axis=0)[0]
            better = cheapest < best[j, units[j] :]
            best[j, units[j] :] = np.where(better, cheapest, best[j, units[j] :])
            came[j, units[j] :] = np.where(better, i, -1)
    keys, j, at = [], n - 1, room
    while j >= 0:
        keys.append(int(problem.sizes[j]))
        j, at = int(came[j, at]), at - units[j]
    found = Best(tuple(reversed(keys)), float(best[-1, room]), exact and problem.exact)
    if exact:
        return found
    # Memory was rounded up: a list for a number of keys may be cheaper, and fit by its true bytes.
    bytes_of = dict(zip((int(size) for size in problem.sizes), taken, strict=True))
    fitting = [
        one
        for one in curve(steps, largest, len(keys) + 2, costs, multiple)
        if sum(bytes_of[key] for key in one.keys) <= left
    ]
    cheapest_one = min([found, *fitting], key=lambda one: one.cost_ms)
    return Best(cheapest_one.keys, cheapest_one.cost_ms, exact=False)


def _problem(steps: Mapping[int, float], largest: int, costs: Costs, multiple: int) -> _Problem:
    up = {-(-size // multiple) * multiple for size in steps}
    known = {size for size in costs.sizes if size < largest and size % multiple == 0}
    every = np.array(sorted({size for size in up if size < largest} | known | {largest}), dtype=np.int64)
    sizes = _thinned(every, steps)
    at = np.searchsorted(sizes, list(steps))
    weights = np.array(list(steps.values()), dtype=float)
    rows = weights * np.array(list(steps), dtype=float)
    lines = [costs.replay(int(size)) for size in sizes]
    return _Problem(
        sizes,
        np.cumsum(np.bincount(at, weights, len(sizes))),
        np.cumsum(np.bincount(at, rows, len(sizes))),
        np.array([line.at_zero for line in lines]),
        np.array([line.a_row for line in lines]),
        len(sizes) == len(every),
    )


def _thinned(sizes: NDArray[np.int64], steps: Mapping[int, float]) -> NDArray[np.int64]:
    """At most `_CANDIDATES` of the sizes, the largest among them, with about as many steps between any two."""
    if len(sizes) <= _CANDIDATES:
        return sizes
    weight = np.bincount(np.searchsorted(sizes, list(steps)), list(steps.values()), len(sizes))
    share = np.cumsum(weight) / weight.sum()
    at = np.searchsorted(share, np.linspace(0, 1, _CANDIDATES))
    kept: NDArray[np.int64] = sizes[np.unique(np.append(np.minimum(at, len(sizes) - 1), len(sizes) - 1))]
    return kept


def _walk(problem: _Problem, before: list[NDArray[np.int64]]) -> tuple[int, ...]:
    keys, j = [], len(problem.sizes) - 1
    for came in reversed(before):
        keys.append(int(problem.sizes[j]))
        j = int(came[j])
        if j < 0:
            break
    return tuple(reversed(keys))
