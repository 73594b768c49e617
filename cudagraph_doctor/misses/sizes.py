"""Buckets: which there are, which one served a step, and how sure that is.

No column of any trace holds a bucket's size. It comes from the user's `--buckets`, from labels of steps or of captures,
or is read off the steps: a graph's bucket is at least the largest batch that it served.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from cudagraph_doctor.traces.labels import Stage
from cudagraph_doctor.traces.steps import CaptureRecord, StepRecord

NO_DECODE = (Stage.PREFILL, Stage.IDLE)


@dataclass(frozen=True, slots=True)
class Buckets:
    """The buckets of a run."""

    sizes: tuple[int, ...]
    """Ascending; empty if nothing tells."""
    origin: str
    """Where `sizes` comes from, in words."""
    exact: bool
    """False: read off the steps, each at least as large as said."""
    by_graph: dict[tuple[int, str], int] = field(default_factory=dict)
    """(lane, graph) -> bucket, as far as known."""
    captured_for: dict[tuple[int, str], int] = field(default_factory=dict)
    """(lane, graph) -> bucket that the label around its capture names."""

    def of(self, step: StepRecord) -> int | None:
        """The bucket that served a replayed step: by its label, its graph, or as the smallest that fits."""
        if step.label.bucket is not None:
            return step.label.bucket
        if step.graphs and (step.lane, step.graphs[0]) in self.by_graph:
            return self.by_graph[step.lane, step.graphs[0]]
        return self.fitting(step.label.size) if self.exact else None

    def fitting(self, size: int | None) -> int | None:
        """The smallest bucket that holds `size`."""
        if size is None:
            return None
        return next((bucket for bucket in self.sizes if bucket >= size), None)

    @property
    def largest(self) -> int | None:
        """The largest bucket."""
        return self.sizes[-1] if self.sizes else None


def find(steps: Iterable[StepRecord], captures: Iterable[CaptureRecord], given: Sequence[int] = ()) -> Buckets:
    """The buckets of a run, from the best source there is."""
    replayed = [step for step in steps if step.graph_launches and step.label.stage not in NO_DECODE]
    labelled = {step.label.bucket for step in replayed if step.label.bucket is not None}
    captured = {c.bucket for c in captures if c.bucket is not None and not c.error}
    captured_for = {(c.lane, graph): c.bucket for c in captures for graph in c.graphs if c.bucket is not None}
    served = _served(replayed)
    by_graph = {**{graph: max(sizes) for graph, sizes in served.items()}, **_by_label(replayed), **captured_for}
    if given:
        sizes, origin, exact = set(given), "--buckets", True
        by_graph = {
            graph: next((b for b in sorted(sizes) if b >= bucket), bucket) if graph not in captured_for else bucket
            for graph, bucket in by_graph.items()
        }
    elif captured:
        sizes, origin, exact = captured | labelled, "labels of captures", True
    elif labelled:
        sizes, origin, exact = labelled, "labels of replayed steps", True
    else:
        sizes, origin, exact = set(by_graph.values()), "the largest batch that each graph served (at least)", False
        if not sizes:
            origin = "nothing: no label and no graph id tells of a bucket"
    return Buckets(tuple(sorted(sizes)), origin, exact, by_graph, captured_for)


def _served(replayed: Iterable[StepRecord]) -> dict[tuple[int, str], set[int]]:
    """(lane, graph) -> sizes of the steps that launched it (first)."""
    served: dict[tuple[int, str], set[int]] = defaultdict(set)
    for step in replayed:
        if step.graphs and step.graphs[0] and step.label.size is not None:
            served[step.lane, step.graphs[0]].add(step.label.size)
    return served


def _by_label(replayed: Iterable[StepRecord]) -> dict[tuple[int, str], int]:
    """(lane, graph) -> the bucket that most of its steps name."""
    named: dict[tuple[int, str], Counter[int]] = defaultdict(Counter)
    for step in replayed:
        if step.graphs and step.graphs[0] and step.label.bucket is not None:
            named[step.lane, step.graphs[0]][step.label.bucket] += 1
    return {graph: counts.most_common(1)[0][0] for graph, counts in named.items()}
