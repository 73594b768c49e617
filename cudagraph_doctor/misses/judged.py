"""All steps of a run with their verdicts, buckets and reasons: what summary, gates and wording read."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from cudagraph_doctor.misses import reasons, sizes
from cudagraph_doctor.misses.reasons import Miss
from cudagraph_doctor.misses.sizes import NO_DECODE, Buckets
from cudagraph_doctor.misses.verdict import Ruling, Verdict, judge, usual_launches
from cudagraph_doctor.traces.labels import Stage
from cudagraph_doctor.traces.steps import CaptureRecord, Gap, Lane, StepRecord, Trace


@dataclass(frozen=True, slots=True)
class Demands:
    """What the user asked for. None: not asked."""

    buckets: tuple[int, ...] = ()
    expect: str | None = None
    """"full" or "piecewise"."""
    expect_launches: int | None = None
    min_hit_rate: float | None = None
    """0 to 1."""
    max_eager_steps: int | None = None
    max_padding: float | None = None
    """0 to 1: padding rows as a share of the buckets' rows."""
    compare_with: dict[str, float] | None = None
    """Numbers of an older run, by name."""
    compare_threshold: float = 0.01
    """How much worse a share may be than in the older run."""


@dataclass(frozen=True, slots=True)
class Judged:
    """One step, judged."""

    record: StepRecord
    ruling: Ruling
    bucket: int | None
    """The bucket that served it; None if it was no replay, or is not known."""
    miss: Miss | None
    """Why it was not a replay; None if it was, if it had not to be, or if that is not known."""
    hit: bool

    @property
    def verdict(self) -> Verdict:
        """Short for the ruling's."""
        return self.ruling.verdict

    @property
    def is_decode(self) -> bool:
        """Whether it had to be a replay: prefill and idle steps had not."""
        return self.record.label.stage not in NO_DECODE

    @property
    def padding(self) -> int | None:
        """Rows (or tokens) of its bucket without a request."""
        size = self.record.label.size
        if self.bucket is None or size is None:
            return None
        return max(0, self.bucket - size)

    @property
    def time_ns(self) -> int:
        """How long it took: on the host or on the GPU, whichever is longer."""
        return max(self.record.end_ns - self.record.start_ns, self.record.gpu_span_ns or 0)


@dataclass(frozen=True, slots=True)
class Run:
    """All traces together."""

    traces: tuple[Trace, ...]
    lanes: tuple[Lane, ...]
    steps: tuple[Judged, ...]
    captures: tuple[CaptureRecord, ...]
    gaps: tuple[Gap, ...]
    buckets: Buckets
    usual: dict[str, int]
    """Form of label -> usual number of graph launches."""

    @property
    def decode(self) -> tuple[Judged, ...]:
        """The steps that had to be replays."""
        return tuple(step for step in self.steps if step.is_decode)


def judge_all(traces: Sequence[Trace], demands: Demands) -> Run:
    """Put the traces together and judge every step."""
    lanes: list[Lane] = []
    records: list[StepRecord] = []
    captures: list[CaptureRecord] = []
    gaps: list[Gap] = []
    for trace in traces:
        offset = len(lanes)
        lanes += trace.lanes
        records += _moved(trace.steps, offset)
        captures += _moved(trace.captures, offset)
        gaps += _moved(trace.gaps, offset)
    lanes = _told_apart(lanes)
    usual = usual_launches(records)
    if demands.expect_launches is not None:
        usual = {record.label.form: demands.expect_launches for record in records}
    stray = any(trace.outside_graph_launches for trace in traces)
    rulings = [judge(record, usual.get(record.label.form, 1), stray) for record in records]
    buckets = sizes.find(records, captures, demands.buckets)
    hits = [
        ruling.verdict is Verdict.FULL
        or (
            ruling.verdict is Verdict.PIECEWISE and (demands.expect == "piecewise" or record.label.stage is Stage.MIXED)
        )
        for record, ruling in zip(records, rulings, strict=True)
    ]
    misses = reasons.find(records, rulings, hits, captures, buckets, usual)
    return Run(
        tuple(traces),
        tuple(lanes),
        tuple(
            Judged(
                record,
                ruling,
                buckets.of(record) if record.graph_launches or ruling.by_side_thread else None,
                miss,
                hit,
            )
            for record, ruling, miss, hit in zip(records, rulings, misses, hits, strict=True)
        ),
        tuple(captures),
        tuple(gaps),
        buckets,
        usual,
    )


def _told_apart(lanes: Sequence[Lane]) -> list[Lane]:
    """Lanes of one name (two traces of one process, or of rank 0) get their file's name too, or a number."""
    once = Counter(lane.name for lane in lanes)
    names = [f"{lane.name} of {lane.source}" if once[lane.name] > 1 else lane.name for lane in lanes]
    twice = Counter(names)
    names = [f"{name} ({i})" if twice[name] > 1 else name for i, name in enumerate(names, start=1)]
    return [dataclasses.replace(lane, name=name) for lane, name in zip(lanes, names, strict=True)]


_R = TypeVar("_R", StepRecord, CaptureRecord, Gap)


def _moved(records: Sequence[_R], offset: int) -> Sequence[_R]:
    """Lanes of a later trace come after those of the earlier ones."""
    return [dataclasses.replace(record, lane=record.lane + offset) for record in records] if offset else records
