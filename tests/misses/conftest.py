"""Made-up records for the judges: no trace, no SQL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cudagraph_doctor.misses.judged import Demands, Run, judge_all
from cudagraph_doctor.traces.labels import Label, Stage
from cudagraph_doctor.traces.steps import CaptureRecord, Lane, StepRecord, Trace

MakeStep = Callable[..., StepRecord]
MakeRun = Callable[..., Run]


@pytest.fixture
def step() -> MakeStep:
    """A decode step: `step(3)` eager with batch 3, `step(3, 4)` replayed by the graph "g4"."""
    made: dict[int, int] = {}

    def make(
        batch: int | None, bucket: int | None = None, *, named: bool = False, lane: int = 0, **more: Any
    ) -> StepRecord:
        index = made[lane] = made.get(lane, -1) + 1
        label = Label(
            f"bs={batch}",
            "x",
            more.pop("stage", Stage.DECODE),
            batch=batch,
            tokens=more.pop("tokens", None),
            bucket=bucket if named else more.pop("meant", None),
            in_tokens=more.pop("in_tokens", False),
            form=more.pop("form", "decode"),
        )
        start = index * 1_000_000
        fields: dict[str, Any] = {"loose_launches": 45, "gpu_busy_ns": 400_000}
        if bucket is not None:
            fields = {
                "graph_launches": 1,
                "loose_launches": 3,
                "graph_kernels": 40,
                "graph_kernels_from": "rows",
                "graphs": (f"g{bucket}",),
                "gpu_busy_ns": 100_000,
            }
        fields |= {
            "first_call_ns": start,
            "last_call_ns": start + (10_000 if bucket else 400_000),
            "gpu_start_ns": start,
            "gpu_end_ns": start + 500_000,
        }
        return StepRecord(lane, index, label, start, start + 600_000, **(fields | more))

    return make


@pytest.fixture
def run() -> MakeRun:
    """`run(steps, captured=(1, 2, 4))`: judged, with captures labelled so."""

    def make(steps: list[StepRecord], captured: tuple[int, ...] = (), **demands: Any) -> Run:
        captures = tuple(
            CaptureRecord(0, i, i + 1, bucket, graphs=(f"g{bucket}",)) for i, bucket in enumerate(captured)
        )
        lanes = tuple(Lane(f"rank {i}", "t", i) for i in range(1 + max(s.lane for s in steps)))
        trace = Trace("t", "nsys", "v", "node", "labels of x", lanes, tuple(steps), captures)
        return judge_all([trace], Demands(**demands))

    return make
