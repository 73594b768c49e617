"""Each gate met, missed, and not to be answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cudagraph_doctor.misses.gates import check, numbers
from cudagraph_doctor.misses.judged import Demands
from cudagraph_doctor.misses.summary import summarize
from cudagraph_doctor.traces.labels import Stage

if TYPE_CHECKING:
    from tests.misses.conftest import MakeRun, MakeStep

CAPTURED = (1, 2, 4, 8)


def met(judged: Any, **demands: Any) -> list[bool | None]:
    return [gate.met for gate in check(judged, Demands(**demands), summarize(judged))]


def test_no_demand(step: MakeStep, run: MakeRun) -> None:
    assert met(run([step(3)])) == []


@pytest.mark.parametrize(
    ("demand", "expected"),
    [
        ({"min_hit_rate": 0.75}, True),
        ({"min_hit_rate": 0.76}, False),
        ({"max_eager_steps": 1}, True),
        ({"max_eager_steps": 0}, False),
        ({"max_padding": 0.2}, True),
        ({"max_padding": 0.1}, False),
        ({"expect": "full"}, False),
        ({"expect_launches": 1}, True),
        ({"expect_launches": 2}, False),
        ({"compare_with": {"hit_rate": 0.76}}, True),
        ({"compare_with": {"hit_rate": 0.77}}, False),
        ({"compare_with": {"eager_share": 0.24}}, True),
        ({"compare_with": {"eager_share": 0.23}}, False),
        ({"compare_with": {"padding_share": 0.2}}, True),
        ({"compare_with": {"padding_share": 0.0}}, False),
        ({"compare_with": {"hit_rate": 0.9}, "compare_threshold": 0.15}, True),
    ],
)
def test_gates(demand: dict[str, Any], expected: bool, step: MakeStep, run: MakeRun) -> None:
    judged = run([step(3, 4), step(5, 8), step(8, 8), step(9)], CAPTURED)
    assert met(judged, **demand) == [expected]


def test_expectations(step: MakeStep, run: MakeRun) -> None:
    pieces = {"graph_launches": 20, "graph_kernels": 120, "loose_launches": 30}
    full, piecewise = [step(3, 4)], [step(3, 4), step(3, 4, **pieces)]
    assert met(run(full), expect="full") == [True]
    assert met(run(piecewise), expect="full") == [False]
    assert met(run(piecewise, expect="piecewise"), expect="piecewise") == [True]


def test_open_steps_count_both_ways(step: MakeStep, run: MakeRun) -> None:
    unknown = {"stage": Stage.UNKNOWN}
    judged = run([step(None, 4, **unknown), step(None, 4, **unknown), step(None, **unknown)], CAPTURED)
    assert met(judged, min_hit_rate=0.6) == [True]
    assert met(judged, min_hit_rate=0.9) == [None]
    assert met(judged, max_eager_steps=1) == [True]
    assert met(judged, max_eager_steps=0) == [None]
    assert met(judged, expect="full") == [None]


def test_padding_that_is_not_known(step: MakeStep, run: MakeRun) -> None:
    assert met(run([step(None, 4)]), max_padding=0.5) == [None]
    assert met(run([step(None, 4)]), compare_with={"padding_share": 0.5}) == [None]


def test_no_replay_to_count_launches_of(step: MakeStep, run: MakeRun) -> None:
    assert met(run([step(3)], CAPTURED), expect_launches=1) == [None]


def test_numbers_leave_out_what_is_not_known(step: MakeStep, run: MakeRun) -> None:
    assert numbers(summarize(run([step(None, 4)]))) == {"hit_rate": 1.0, "eager_share": 0.0}


def test_full_replays_are_not_shown_by_mixed_steps_alone(step: MakeStep, run: MakeRun) -> None:
    pieces = {"graph_launches": 20, "graph_kernels": 120, "loose_launches": 30, "stage": Stage.MIXED}
    judged = run([step(3, 4, **pieces)], CAPTURED)
    [gate] = check(judged, Demands(expect="full"), summarize(judged))
    assert gate.met is None
    assert "no pure decode step to judge (1 with prefill tokens mixed in" in gate.message
    assert "pure decode steps" in gate.fix
    assert met(run([step(3, 4, **pieces), step(3, 4)], CAPTURED), expect="full") == [True]
    assert met(run([step(3, 4, **pieces), step(3)], CAPTURED), expect="full") == [False]
    assert met(run([step(3, 4, **pieces)], CAPTURED, expect="piecewise"), expect="piecewise") == [True]


@pytest.mark.parametrize(
    ("old_rate", "held"),
    [(0.46, False), (0.98, False), (0.99, True), (1.0, True), (None, True)],
)
def test_padding_is_no_regression_where_more_is_replayed(
    old_rate: float | None, held: bool, step: MakeStep, run: MakeRun
) -> None:
    """Now all are hits; a step that ran eager before had no padding."""
    old = {"padding_share": 0.0} | ({} if old_rate is None else {"hit_rate": old_rate})
    judged = run([step(3, 4), step(5, 8)], CAPTURED)
    gates = check(judged, Demands(compare_with=old), summarize(judged))
    assert gates[-1].key == "padding_share" and gates[-1].met is not held
    assert ("not held against a run with more replays" in gates[-1].message) is not held
