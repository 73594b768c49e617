"""The rule, its borders, and what it says where the kernels inside graphs are not recorded."""

from __future__ import annotations

from typing import Any

import pytest

from cudagraph_doctor.misses.verdict import Verdict, judge, rule, usual_launches
from cudagraph_doctor.traces.labels import Label, Stage
from cudagraph_doctor.traces.steps import StepRecord


def a_step(form: str = "decode", **fields: Any) -> StepRecord:
    return StepRecord(0, 0, Label("", "x", Stage.DECODE, form=form), 0, 100, **fields)


@pytest.mark.parametrize(
    ("graphs", "loose", "kernels", "usual", "verdict"),
    [
        (0, 1, 0, 1, "EAGER"),
        (0, 0, 0, 1, "UNKNOWN"),
        (1, 0, 421, 1, "FULL"),
        (1, 16, 40, 1, "FULL"),
        (1, 17, 40, 1, "MIXED"),
        (1, 20, 400, 1, "FULL"),  # 5 % of 400
        (1, 21, 400, 1, "MIXED"),
        (2, 3, 80, 1, "PIECEWISE"),
        (2, 3, 80, 2, "FULL"),
        (1, 3, 80, 2, "PIECEWISE"),
        (25, 51, 361, 1, "PIECEWISE"),
        (25, 51, 361, 25, "PIECEWISE"),
        (2, 50, 50, 1, "PIECEWISE"),  # just half of the kernels
        (2, 51, 50, 1, "MIXED"),
        (7, 716, 70, 1, "MIXED"),
        (1, 278, 315, 1, "MIXED"),
    ],
)
def test_rule(graphs: int, loose: int, kernels: int, usual: int, verdict: str) -> None:
    assert rule(graphs, loose, kernels, usual) == verdict
    step = a_step(graph_launches=graphs, loose_launches=loose, graph_kernels=kernels)
    assert judge(step, usual).verdict == verdict


@pytest.mark.parametrize(
    ("graphs", "loose", "verdict"),
    [
        (1, 16, "FULL"),
        (1, 17, "UNKNOWN"),  # FULL if the graph has 340 kernels or more
        (1, 400, "MIXED"),  # no graph has 8,000
        (25, 20, "PIECEWISE"),  # each has at least one
        (25, 51, "UNKNOWN"),
    ],
)
def test_kernels_not_recorded(graphs: int, loose: int, verdict: str) -> None:
    ruling = judge(a_step(graph_launches=graphs, loose_launches=loose), 1)
    assert ruling.verdict == verdict
    assert ("node mode" in ruling.why) == (verdict == "UNKNOWN")


def test_what_forbids_a_verdict() -> None:
    launched: dict[str, Any] = {"graph_launches": 1, "graph_kernels": 40}
    assert judge(a_step(whole=False, **launched), 1).verdict is Verdict.UNKNOWN
    assert judge(a_step(unexplained=1, **launched), 1).verdict is Verdict.UNKNOWN
    assert judge(a_step(captures=1, **launched), 1).verdict is Verdict.CAPTURE
    failed = judge(a_step(failures=("cudaGraphLaunch returned 700",)), 1)
    assert failed.verdict is Verdict.UNKNOWN and "returned 700" in failed.why


def test_side_thread() -> None:
    ruling = judge(a_step(side_graph_launches=1, side_loose_launches=5), 1)
    assert (ruling.verdict, ruling.by_side_thread) == (Verdict.FULL, True)
    ruling = judge(a_step(loose_launches=3, side_graph_launches=1), 1)  # staged here, launched there
    assert (ruling.verdict, ruling.by_side_thread) == (Verdict.FULL, True)
    ruling = judge(a_step(graph_launches=1, graph_kernels=40, side_loose_launches=500), 1)
    assert (ruling.verdict, ruling.by_side_thread) == (Verdict.FULL, False)


def test_few_kernels_while_graphs_are_launched_outside_of_steps() -> None:
    assert judge(a_step(loose_launches=3), 1, stray=True).verdict is Verdict.UNKNOWN
    assert judge(a_step(loose_launches=300), 1, stray=True).verdict is Verdict.EAGER
    assert judge(a_step(loose_launches=3), 1).verdict is Verdict.EAGER


def test_usual_number_of_launches() -> None:
    def steps(*graphs: int, form: str = "decode", **more: Any) -> list[StepRecord]:
        return [a_step(form, graph_launches=g, graph_kernels=40 * g, **more) for g in graphs]

    assert usual_launches(steps(1, 1, 2)) == {"decode": 1}
    assert usual_launches(steps(3, 3, 1)) == {"decode": 3}
    assert usual_launches(steps(2, 1)) == {"decode": 1}  # the smaller of two as common
    assert usual_launches(steps(2, form="verify") + steps(1)) == {"verify": 2, "decode": 1}
    assert usual_launches(steps(5, loose_launches=100)) == {}
    assert usual_launches(steps(5, captures=1)) == {}
    assert usual_launches(steps(5, whole=False)) == {}
    assert usual_launches([a_step(side_graph_launches=2)]) == {"decode": 2}
