"""One configuration judged: gaps, traffic, memory, a better list. What gates, summary and wording read."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from cudagraph_doctor.audit import best, coverage, memory, traffic
from cudagraph_doctor.audit.best import Best
from cudagraph_doctor.audit.costs import Costs
from cudagraph_doctor.audit.coverage import Disagreement, Gap, Kind
from cudagraph_doctor.audit.job import Demands
from cudagraph_doctor.audit.keys import Configuration, KeySet, spans
from cudagraph_doctor.audit.memory import Memory
from cudagraph_doctor.audit.simulate import Comparison
from cudagraph_doctor.audit.traffic import Traffic
from cudagraph_doctor.audit.workload import Workload
from cudagraph_doctor.errors import Inconclusive, UsageError

CURVE = 64
"""Graphs that the curve goes up to, at least."""


@dataclass(frozen=True, slots=True)
class JudgedSet:
    """One set of keys."""

    keys: KeySet
    gaps: tuple[Gap, ...]
    doubtful: frozenset[Kind]
    """Kinds of gaps that another rule of the engine does not have, where the rule was assumed."""
    without_adapters: tuple[int, ...]
    unreachable: tuple[int, ...]
    sure: bool
    """Whether these keys are unreachable under all rules that may hold."""
    traffic: Traffic
    memory: Memory | None
    better: Best | None
    """The cheapest list; None where there is none to look for (graphs are off, or nothing is padded)."""
    better_traffic: Traffic | None
    curve: tuple[Best, ...]


@dataclass(frozen=True, slots=True)
class Judged:
    """One configuration."""

    configuration: Configuration
    rank: int | None
    """None where there is only one."""
    sets: tuple[JudgedSet, ...]
    elsewhere: tuple[str, ...] = ()
    """Gaps that only other versions of the engine have, where the rule was assumed: in sentences."""


@dataclass(frozen=True, slots=True)
class Audit:
    """All of it."""

    judged: tuple[Judged, ...]
    """One for each configuration that differs from those before it."""
    configurations: tuple[Configuration, ...]
    disagreements: tuple[Disagreement, ...]
    workload: Workload
    assumed: bool
    """Whether the workload is one that nobody gave."""
    costs: Costs
    demands: Demands
    comparison: Comparison | None = None


def judge(
    configurations: Sequence[tuple[Configuration, Sequence[Configuration]]],
    workload: Workload,
    costs: Costs,
    demands: Demands,
    *,
    assumed: bool = False,
    comparison: Comparison | None = None,
) -> Audit:
    """Judge configurations, each with what it is under the engine's other rules.

    Raises:
        UsageError: a better list within a memory budget is asked for, and the costs tell no memory.
        Inconclusive: no list fits the budget.
    """
    several = len(configurations) > 1
    judged: list[Judged] = []
    for rank, (configuration, others) in enumerate(configurations):
        if any(one.configuration.sets == configuration.sets for one in judged):
            continue
        sets = tuple(_set(keys, configuration, others, workload, costs, demands) for keys in configuration.sets)
        judged.append(Judged(configuration, rank if several else None, sets, _elsewhere(configuration, others)))
    made = tuple(configuration for configuration, _ in configurations)
    apart = tuple(coverage.disagreements(made)) if several else ()
    return Audit(tuple(judged), made, apart, workload, assumed, costs, demands, comparison)


def _set(
    keys: KeySet,
    configuration: Configuration,
    others: Sequence[Configuration],
    workload: Workload,
    costs: Costs,
    demands: Demands,
) -> JudgedSet:
    if configuration.turned_off:
        keys = dataclasses.replace(keys, full=(), piecewise=(), fails_up_to=0)
    steps = workload.for_keys(keys)
    gaps = () if configuration.turned_off else tuple(coverage.gaps(keys))
    unreachable = coverage.unreachable(keys)
    found, curve = _better(keys, steps, costs, demands) if keys.full and keys.padded else (None, ())
    listed = dataclasses.replace(keys, full=found.keys) if found else None
    return JudgedSet(
        keys,
        gaps,
        frozenset(gap.kind for gap in gaps if any(not _has(other, keys.name, gap.kind) for other in others)),
        () if configuration.turned_off else coverage.adapters_without_key(keys),
        unreachable,
        all(set(unreachable) <= _unreachable(other, keys.name) for other in others),
        traffic.meet(steps, keys, costs),
        memory.of(keys.full, costs, memory.copies(keys)),
        found,
        traffic.meet(steps, listed, costs) if listed else None,
        curve,
    )


def _unreachable(configuration: Configuration, name: str) -> set[int]:
    return {key for keys in configuration.sets if keys.name == name for key in coverage.unreachable(keys)}


def _elsewhere(configuration: Configuration, others: Sequence[Configuration]) -> tuple[str, ...]:
    if configuration.turned_off:
        return ()
    said = []
    for other in others:
        for keys in other.sets:
            for gap in coverage.gaps(keys):
                if not _has(configuration, keys.name, gap.kind):
                    how = " or ".join(mode.value for mode in gap.modes)
                    said.append(f"under {other.rule} {spans(gap.requests)} requests run {how}")
    return tuple(said)


def _has(configuration: Configuration, name: str, kind: Kind) -> bool:
    return any(gap.kind is kind for keys in configuration.sets if keys.name == name for gap in coverage.gaps(keys))


def _better(
    keys: KeySet, steps: dict[int, float], costs: Costs, demands: Demands
) -> tuple[Best | None, tuple[Best, ...]]:
    largest = keys.size(keys.most)
    multiple = keys.width if keys.uniform else 1
    fitting = {size: weight for size, weight in steps.items() if size <= largest and keys.aligned(size)}
    if not fitting:
        return None, ()
    asked = demands.graphs or len(keys.full)
    lists = best.curve(fitting, largest, max(asked, min(CURVE, len(fitting))), costs, multiple)
    if demands.graph_memory is None:
        return [one for one in lists if len(one.keys) <= asked][-1], tuple(lists)
    try:
        found = best.within(fitting, largest, demands.graph_memory, costs, multiple)
    except ValueError:
        raise UsageError(
            "--graph-memory is asked, and the costs tell no memory of keys.", fix="Give --costs with graph_bytes."
        ) from None
    if found is None:
        raise Inconclusive(
            f"No list fits the budget of {demands.graph_memory} bytes: the key for {largest} alone takes more.",
            fix="Allow more memory, or admit fewer requests.",
        )
    return found, tuple(lists)
