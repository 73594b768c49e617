"""Traces put together: lanes of the later ones come after those of the earlier ones; demands reach the rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cudagraph_doctor.misses.judged import Demands, judge_all
from cudagraph_doctor.misses.summary import summarize
from cudagraph_doctor.misses.verdict import Verdict
from cudagraph_doctor.traces.labels import Stage
from cudagraph_doctor.traces.steps import CaptureRecord, Gap, Lane, Trace

if TYPE_CHECKING:
    from tests.misses.conftest import MakeRun, MakeStep


def test_lanes(step: MakeStep) -> None:
    def trace(name: str, graph_bucket: int) -> Trace:
        return Trace(
            name,
            "nsys",
            "v",
            "node",
            "labels of x",
            (Lane(name, name),),
            (step(3, graph_bucket),),
            (CaptureRecord(0, 0, 1, graph_bucket, graphs=(f"g{graph_bucket}",)),),
            (Gap(0, 1, 1, 0, 0, 0, 0, 0),),
        )

    run = judge_all([trace("a", 4), trace("b", 8)], Demands())
    assert [lane.name for lane in run.lanes] == ["a", "b"]
    assert [(s.record.lane, s.bucket) for s in run.steps] == [(0, 4), (1, 8)]
    assert [c.lane for c in run.captures] == [gap.lane for gap in run.gaps] == [0, 1]


def test_expected_launches(step: MakeStep, run: MakeRun) -> None:
    twice = [step(3, 4, graph_launches=2, graph_kernels=80, graphs=("g4", "g4")) for _ in range(3)]
    assert [s.verdict for s in run(twice).steps] == [Verdict.FULL] * 3
    assert [s.verdict for s in run(twice, expect_launches=1).steps] == [Verdict.PIECEWISE] * 3


def test_hits(step: MakeStep, run: MakeRun) -> None:
    pieces = {"graph_launches": 20, "graph_kernels": 120, "loose_launches": 30}
    steps = [step(3, 4), step(3, 4, **pieces), step(3), step(9, stage=Stage.PREFILL)]
    assert [s.hit for s in run(steps).steps] == [True, False, False, False]
    assert [s.hit for s in run(steps, expect="piecewise").steps] == [True, True, False, False]
    assert [s.is_decode for s in run(steps).steps] == [True, True, True, False]


def test_a_step_takes_as_long_as_host_or_gpu(step: MakeStep, run: MakeRun) -> None:
    judged = run([step(3, 4, gpu_end_ns=9_000_000), step(3, 4)])
    assert [s.time_ns for s in judged.steps] == [9_000_000, 600_000]


@pytest.mark.parametrize(
    ("sources", "names"),
    [
        (["a.json"], ["rank 0"]),
        (["a.json", "b.json"], ["rank 0 of a.json", "rank 0 of b.json"]),
        (["a.json", "a.json"], ["rank 0 of a.json (1)", "rank 0 of a.json (2)"]),
    ],
)
def test_lanes_of_one_name_are_told_apart(sources: list[str], names: list[str], step: MakeStep) -> None:
    traces = [
        Trace(source, "nsys", "v", "node", "labels of x", (Lane("rank 0", source, 0),), (step(3, 4),))
        for source in sources
    ]
    judged = judge_all(traces, Demands())
    assert [lane.name for lane in judged.lanes] == names
    assert len(summarize(judged)["ranks"]) == len(names)  # and nothing is looked up by a name that two share
