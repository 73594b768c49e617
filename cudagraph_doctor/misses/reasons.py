"""Why a step was not a replay, as far as the steps around it tell. A reason that would be a guess is not given.

The order of the questions matters: a step that is above the largest bucket would also be "bypassed".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from cudagraph_doctor.misses.sizes import NO_DECODE, Buckets
from cudagraph_doctor.misses.verdict import Ruling, Verdict, few
from cudagraph_doctor.traces.labels import Stage
from cudagraph_doctor.traces.steps import CaptureRecord, StepRecord

_LOST_AFTER = 3
"""Steps without any replay at the end of a trace before it counts as lost for good."""


class Reason(StrEnum):
    """Why a step was not a plain replay. The values are what the JSON says."""

    ABOVE_LARGEST = "above the largest bucket"
    HOLE = "hole in the list"
    PADDING_OFF = "padding off"
    PREFILL = "prefill tokens mixed in"
    SPECULATION = "spec-decode tokens not a multiple"
    NEVER_LAUNCHED = "enabled but never launched"
    NO_GRAPHS = "no graph anywhere in the trace"
    BYPASSED = "bypassed though a bucket fits"
    LOST = "no replay any more from some step on"
    CAPTURE = "capture in the step"
    KEY_TOO_WEAK = "several graphs under one key"
    EXEC_UPDATE = "exec update in the step"
    OUTSIDE_GRAPH = "kernels outside the graphs"
    UNUSUAL = "unusual number of graph launches"
    FAILED = "a graph or capture call failed"


@dataclass(frozen=True, slots=True)
class Miss:
    """Why one step was not a plain replay."""

    reason: Reason
    key: str = ""
    """The bucket concerned, as text; "" if it concerns none in particular."""
    detail: str = ""
    sure: bool = True
    """False: it rests on buckets that were read off the steps."""


def find(
    steps: Sequence[StepRecord],
    rulings: Sequence[Ruling],
    hits: Sequence[bool],
    captures: Sequence[CaptureRecord],
    buckets: Buckets,
    usual: dict[str, int],
) -> list[Miss | None]:
    """The reason of each step; None for plain replays, prefill and idle steps, and where none is known."""
    run = _Run(steps, rulings, hits, captures, buckets, usual)
    return [run.miss(i) for i in range(len(steps))]


class _Run:
    def __init__(
        self,
        steps: Sequence[StepRecord],
        rulings: Sequence[Ruling],
        hits: Sequence[bool],
        captures: Sequence[CaptureRecord],
        buckets: Buckets,
        usual: dict[str, int],
    ) -> None:
        self.steps = steps
        self.rulings = rulings
        self.hits = hits
        self.buckets = buckets
        self.usual = usual
        self.captured = any(not capture.error for capture in captures) or any(s.instantiations for s in steps)
        self.named = any(step.label.bucket is not None for step in steps)
        decoding = [i for i, step in enumerate(steps) if step.label.stage not in NO_DECODE]
        self.replays = [i for i in decoding if steps[i].graph_launches or rulings[i].by_side_thread]
        self.replayed_sizes = {steps[i].label.size for i in decoding if hits[i]} - {None}
        self.replayed_buckets = {buckets.of(steps[i]) for i in decoding if hits[i]} - {None}
        self.padded = [i for i in decoding if hits[i] and self._padding(i)]
        self.unit = self._tokens_per_request(decoding)
        lanes = sorted({steps[i].lane for i in decoding})
        self.lost_from = {lane: self._lost([i for i in decoding if steps[i].lane == lane]) for lane in lanes}
        self.weak = self._weak_keys(decoding)
        last = max(self.padded, default=len(steps))
        since = {i for i in decoding if i > last and self._would_pad(i)}
        self.unpadded_since = since if all(rulings[i].verdict is Verdict.EAGER for i in since) else set()
        self.always_eager = {
            buckets.fitting(steps[i].label.size)
            for i in decoding
            if i < last and self._would_pad(i) and rulings[i].verdict is Verdict.EAGER
        }

    def miss(self, i: int) -> Miss | None:
        """The reason of step `i`."""
        step, verdict = self.steps[i], self.rulings[i].verdict
        if step.label.stage in NO_DECODE:
            return None
        weak = self.weak.get(self._key(step))
        match verdict:
            case Verdict.UNKNOWN:
                return Miss(Reason.FAILED, self._key(step), step.failures[0]) if step.failures else None
            case Verdict.CAPTURE:
                return self._capture(step, weak)
            case Verdict.FULL | Verdict.PIECEWISE if self.hits[i]:
                if step.updates:
                    return Miss(Reason.EXEC_UPDATE, self._key(step), f"{step.updates} in the step")
                return Miss(Reason.KEY_TOO_WEAK, self._key(step), weak) if weak else None
            case Verdict.EAGER:
                return self._eager(i)
        usual = self.usual.get(step.label.form, 1)
        if few(step.loose_launches, step.graph_kernels or 0) and step.graph_launches != usual:
            return Miss(Reason.UNUSUAL, self._key(step), f"{step.graph_launches} launches, usually {usual}")
        names = f", most often {', '.join(step.loose_names)}" if step.loose_names else ""
        launches = "1 graph launch" if step.graph_launches == 1 else f"{step.graph_launches} graph launches"
        return Miss(Reason.OUTSIDE_GRAPH, self._key(step), f"{step.loose_launches} kernels beside {launches}{names}")

    # the questions

    def _eager(self, i: int) -> Miss | None:
        step, size = self.steps[i], self.steps[i].label.size
        if step.failures:
            return Miss(Reason.FAILED, self._key(step), step.failures[0])
        largest = self.buckets.largest
        if step.label.stage is Stage.MIXED and self.replays:
            return Miss(Reason.PREFILL)
        above = size is not None and largest is not None and size > largest
        if above and self.buckets.exact:
            return Miss(Reason.ABOVE_LARGEST, str(largest), self._unit_hint(step))
        if not self.replays:
            told = self.captured or self.named
            return Miss(Reason.NEVER_LAUNCHED if told else Reason.NO_GRAPHS)
        if step.label.stage is Stage.UNKNOWN and size is None:
            return None
        lost_from = self.lost_from.get(step.lane)
        if lost_from is not None and i >= lost_from and not above:
            return Miss(Reason.LOST, "", f"from step {self.steps[lost_from].index} on")
        if size is None:
            return Miss(Reason.BYPASSED, "", "its label says no batch size, so it may be too large", sure=False)
        speculation = self._speculation(step)
        if speculation and size not in self.replayed_sizes:
            return speculation
        if above:
            return Miss(Reason.ABOVE_LARGEST, str(largest), sure=False)
        return self._below_largest(i, size)

    def _below_largest(self, i: int, size: int) -> Miss:
        """A larger bucket exists, and yet the step ran eager."""
        step = self.steps[i]
        intended = step.label.bucket
        fitting = intended if intended is not None else self.buckets.fitting(size)
        key, sure = str(fitting or ""), self.buckets.exact
        if intended is not None and intended not in self.replayed_buckets:
            if intended in self.buckets.sizes:
                return Miss(Reason.BYPASSED, key, "its graph is captured and never replayed")
            return Miss(Reason.HOLE, key, f"bucket {intended} has no graph")
        lost = self._padding_lost(i)
        if lost >= (_LOST_AFTER if size in self.replayed_sizes else 1):
            last = self.steps[max(self.padded)].index
            return Miss(Reason.PADDING_OFF, key, f"padded steps were replayed up to step {last}", sure)
        if size in self.replayed_sizes or size in self.buckets.sizes or intended is not None:
            return Miss(Reason.BYPASSED, key)
        if not self.padded:
            return Miss(Reason.PADDING_OFF, key, "no step with fewer rows than its bucket was replayed", sure)
        return Miss(Reason.HOLE, key, f"no bucket was used between {self._below(size)} and {fitting}", sure)

    def _padding_lost(self, i: int) -> int:
        """Steps that need padding, all eager, after the last padded replay: 0 if step `i` is not among them.

        Nor if steps of its bucket ran eager before: then padding did not end, it never was.
        """
        bucket = self.buckets.fitting(self.steps[i].label.size)
        return len(self.unpadded_since) if i in self.unpadded_since and bucket not in self.always_eager else 0

    def _capture(self, step: StepRecord, weak: str | None) -> Miss:
        if step.failures:
            return Miss(Reason.FAILED, self._key(step), step.failures[0])
        if weak:
            return Miss(Reason.KEY_TOO_WEAK, self._key(step), weak)
        return Miss(Reason.CAPTURE, self._key(step))

    def _speculation(self, step: StepRecord) -> Miss | None:
        """Tokens that are no whole number of drafts a request, or that no multiple of it among the buckets holds."""
        tokens, batch, unit = step.label.tokens, step.label.batch, self.unit
        if unit is None or not tokens or not batch:
            return None
        key = str(self.buckets.fitting(step.label.size) or "")
        if tokens % unit or tokens != batch * unit:
            return Miss(Reason.SPECULATION, key, f"{tokens} tokens of {batch} requests, usually {unit} a request")
        usable = [bucket for bucket in self.buckets.sizes if bucket >= tokens and bucket % unit == 0]
        if step.label.in_tokens and not usable and self.buckets.exact:
            return Miss(Reason.SPECULATION, key, f"no bucket from {tokens} up is a multiple of {unit}")
        return None

    # what is needed to answer them

    def _key(self, step: StepRecord) -> str:
        bucket = self.buckets.of(step) if step.graph_launches else step.label.bucket
        if bucket is None:
            bucket = self.buckets.fitting(step.label.size)
        return "" if bucket is None else str(bucket)

    def _padding(self, i: int) -> bool:
        bucket, size = self.buckets.of(self.steps[i]), self.steps[i].label.size
        return bucket is not None and size is not None and bucket > size

    def _would_pad(self, i: int) -> bool:
        size = self.steps[i].label.size
        return (
            self.steps[i].label.stage not in NO_DECODE
            and size is not None
            and size not in self.buckets.sizes
            and self.buckets.fitting(size) is not None
        )

    def _below(self, size: int) -> int:
        return max((bucket for bucket in self.buckets.sizes if bucket < size), default=0)

    def _unit_hint(self, step: StepRecord) -> str:
        batch, size, largest = step.label.batch, step.label.size, self.buckets.largest
        if batch is not None and size is not None and largest is not None and batch <= largest < size:
            return f"buckets count tokens here: {batch} requests are {size} tokens"
        return ""

    def _tokens_per_request(self, decoding: Sequence[int]) -> int | None:
        """The usual tokens a request of replayed steps, if it is more than one: speculation."""
        ratios: Counter[int] = Counter()
        for i in decoding:
            label = self.steps[i].label
            whole = bool(label.tokens and label.batch) and (label.tokens or 0) % (label.batch or 1) == 0
            if self.hits[i] and label.stage is Stage.DECODE and whole:
                ratios[(label.tokens or 0) // (label.batch or 1)] += 1
        if not ratios:
            return None
        unit = ratios.most_common(1)[0][0]
        return unit if unit > 1 else None

    def _lost(self, decoding: Sequence[int]) -> int | None:
        """The step from which on a lane replays nothing, though it replayed the same sizes before."""
        replays = set(self.replays)
        last = max((i for i in decoding if i in replays), default=None)
        if last is None:
            return None
        after = [i for i in decoding if i > last]
        again = [i for i in after if self.steps[i].label.size in self.replayed_sizes]
        exact_only = {self.steps[i].label.size for i in after} & set(self.buckets.sizes)
        if len(after) < _LOST_AFTER or not again or (self.buckets.exact and not exact_only):
            return None
        before = [i for i in decoding if i <= last and self.steps[i].label.size in self.replayed_sizes]
        eager_before = sum(self.rulings[i].verdict is Verdict.EAGER for i in before)
        return after[0] if not eager_before else None

    def _weak_keys(self, decoding: Sequence[int]) -> dict[str, str]:
        """Keys whose graph is captured again and again, or belongs to another key.

        Graphs that differ under one bucket are no sign: the runner's key may hold more than its labels tell.
        """
        weak: dict[str, str] = {}
        captures: dict[str, list[int]] = {}
        for i in decoding:
            step, key = self.steps[i], self._key(self.steps[i])
            if not key or (step.label.bucket is None and not self.buckets.exact):
                continue
            if self.rulings[i].verdict is Verdict.CAPTURE and not step.failures:
                captures.setdefault(key, []).append(i)
            meant = {self.buckets.captured_for.get((step.lane, graph)) for graph in step.graphs} - {None}
            size = step.label.size
            too_small = [bucket for bucket in meant if size is not None and bucket is not None and bucket < size]
            if too_small and self.hits[i]:
                weak[key] = f"{size} rows were served by the graph captured for {too_small[0]}"
        for key, at in captures.items():
            between = [i for i in decoding if at[0] < i < at[-1] and self.hits[i] and self._key(self.steps[i]) == key]
            if len(at) > 1 and between:
                weak[key] = f"captured {len(at)} times, with replays in between"
        return weak
