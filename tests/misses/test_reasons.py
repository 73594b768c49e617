"""Why a step was no replay, one question at a time; and where nothing is to be said."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cudagraph_doctor.misses.reasons import Reason
from cudagraph_doctor.traces.labels import Stage

if TYPE_CHECKING:
    from cudagraph_doctor.misses.judged import Run
    from tests.misses.conftest import MakeRun, MakeStep

CAPTURED = (1, 2, 4, 8)


def reasons(judged: Run) -> list[Reason | None]:
    return [s.miss.reason if s.miss else None for s in judged.steps]


def test_above_the_largest(step: MakeStep, run: MakeRun) -> None:
    judged = run([step(8, 8), step(9), step(12)], CAPTURED)
    assert reasons(judged) == [None, Reason.ABOVE_LARGEST, Reason.ABOVE_LARGEST]
    assert judged.steps[1].miss is not None and judged.steps[1].miss.key == "8" and judged.steps[1].miss.sure


def test_above_the_largest_seen_is_a_suspicion(step: MakeStep, run: MakeRun) -> None:
    judged = run([step(7, 8), step(8)])
    assert reasons(judged) == [None, Reason.ABOVE_LARGEST]
    assert judged.steps[1].miss is not None and not judged.steps[1].miss.sure


def test_hole(step: MakeStep, run: MakeRun) -> None:
    judged = run([step(1, 2), step(3), step(7, 8), step(3)], (1, 2, 8))
    assert reasons(judged) == [None, Reason.HOLE, None, Reason.HOLE]
    assert judged.steps[1].miss is not None and "between 2 and 8" in judged.steps[1].miss.detail


def test_a_bucket_that_is_meant_and_has_no_graph(step: MakeStep, run: MakeRun) -> None:
    judged = run([step(3, 4), step(8, meant=8), step(7, meant=8), step(3, 4)], (1, 2, 4))
    assert reasons(judged) == [None, Reason.ABOVE_LARGEST, Reason.ABOVE_LARGEST, None]
    judged = run([step(3, 4), step(7, meant=8), step(12, 16)], (1, 2, 4, 16))
    assert reasons(judged) == [None, Reason.HOLE, None]


def test_padding_off(step: MakeStep, run: MakeRun) -> None:
    judged = run([step(4, 4), step(3), step(8, 8), step(5)], CAPTURED)
    assert reasons(judged) == [None, Reason.PADDING_OFF, None, Reason.PADDING_OFF]


def test_bypassed(step: MakeStep, run: MakeRun) -> None:
    judged = run([step(3, 4), step(3), step(3, 4), step(8)], CAPTURED)
    assert reasons(judged) == [None, Reason.BYPASSED, None, Reason.BYPASSED]
    judged = run([step(3, 4), step(None), step(4, 4)], CAPTURED)
    assert reasons(judged) == [None, Reason.BYPASSED, None]
    assert judged.steps[1].miss is not None and not judged.steps[1].miss.sure  # it may be above the largest


def test_lost(step: MakeStep, run: MakeRun) -> None:
    judged = run([step(3, 4), step(4, 4), step(3), step(4), step(8), step(9)], CAPTURED)
    assert reasons(judged) == [None, None, Reason.LOST, Reason.LOST, Reason.LOST, Reason.ABOVE_LARGEST]
    two = run([step(3, 4), step(4, 4), step(3), step(4)], CAPTURED)
    assert reasons(two)[2:] == [Reason.BYPASSED] * 2  # too few to say so


def test_prefill(step: MakeStep, run: MakeRun) -> None:
    mixed = [step(3, stage=Stage.MIXED), step(3, stage=Stage.PREFILL), step(3, stage=Stage.IDLE)]
    judged = run([step(3, 4), *mixed], CAPTURED)
    assert reasons(judged) == [None, Reason.PREFILL, None, None]
    assert len(judged.decode) == 2


def test_a_mixed_step_that_is_piecewise_is_as_it_should_be(step: MakeStep, run: MakeRun) -> None:
    pieces = step(3, 4, stage=Stage.MIXED, graph_launches=25, graph_kernels=361, loose_launches=51, form="mixed")
    judged = run([step(3, 4), pieces], CAPTURED)
    assert reasons(judged) == [None, None] and judged.steps[1].hit


def test_never_launched(step: MakeStep, run: MakeRun) -> None:
    assert reasons(run([step(3), step(4)], CAPTURED)) == [Reason.NEVER_LAUNCHED] * 2
    assert reasons(run([step(3, meant=4), step(4)])) == [Reason.NEVER_LAUNCHED] * 2
    assert reasons(run([step(3), step(4)])) == [Reason.NO_GRAPHS] * 2
    assert reasons(run([step(9), step(4)], CAPTURED)) == [Reason.ABOVE_LARGEST, Reason.NEVER_LAUNCHED]


def test_a_step_that_may_be_a_prefill_is_left_open(step: MakeStep, run: MakeRun) -> None:
    judged = run([step(None, 4, stage=Stage.UNKNOWN), step(None, stage=Stage.UNKNOWN)])
    assert reasons(judged) == [None, None]


@pytest.mark.parametrize(("batch", "tokens", "reason"), [(4, 11, Reason.SPECULATION), (2, 5, Reason.SPECULATION)])
def test_speculation(batch: int, tokens: int, reason: Reason, step: MakeStep, run: MakeRun) -> None:
    sound = [step(n, 3 * n, tokens=3 * n, in_tokens=True) for n in (1, 2, 4)]
    judged = run([*sound, step(batch, tokens=tokens, in_tokens=True)], (3, 6, 12))
    assert reasons(judged) == [None] * 3 + [reason]


def test_no_bucket_of_whole_drafts(step: MakeStep, run: MakeRun) -> None:
    sound = [step(n, 3 * n, tokens=3 * n, in_tokens=True) for n in (1, 2)]
    judged = run([*sound, step(3, tokens=9, in_tokens=True)], (3, 6, 10))
    assert reasons(judged)[-1] is Reason.SPECULATION


def test_tokens_against_a_limit_in_requests(step: MakeStep, run: MakeRun) -> None:
    sound = [step(n, 3 * n, tokens=3 * n, in_tokens=True) for n in (1, 2)]
    judged = run([*sound, step(4, tokens=12, in_tokens=True)], (3, 6))
    assert reasons(judged)[-1] is Reason.ABOVE_LARGEST
    assert judged.steps[-1].miss is not None and "buckets count tokens" in judged.steps[-1].miss.detail


def test_capture(step: MakeStep, run: MakeRun) -> None:
    judged = run([step(3, 4, captures=1), step(3, 4)], CAPTURED)
    assert reasons(judged) == [Reason.CAPTURE, None]
    failed = run([step(3, captures=1, failures=("cuStreamEndCapture returned 901",)), step(3, 4)], CAPTURED)
    assert reasons(failed)[0] is Reason.FAILED


def test_weak_keys(step: MakeStep, run: MakeRun) -> None:
    again = run([step(3, 4, captures=1), step(3, 4), step(3, 4, captures=1)], CAPTURED)
    assert reasons(again) == [Reason.KEY_TOO_WEAK] * 3
    every = run([step(3, 4, captures=1), step(3, 4, captures=1), step(3, 4, captures=1)], CAPTURED)
    assert reasons(every) == [Reason.CAPTURE] * 3  # never replayed: the key is too strong, if anything
    modes = run([step(3, 4, named=True), step(3, 4, named=True, graphs=("other",), graph_kernels=50)])
    assert reasons(modes) == [None, None]  # the key may hold more than the label tells
    foreign = run([step(7, 8, named=True, graphs=("g4",))], CAPTURED)
    assert foreign.steps[0].miss is not None and "captured for 4" in foreign.steps[0].miss.detail


def test_exec_update(step: MakeStep, run: MakeRun) -> None:
    assert reasons(run([step(3, 4, updates=1), step(3, 4)], CAPTURED)) == [Reason.EXEC_UPDATE, None]


def test_outside_of_graphs(step: MakeStep, run: MakeRun) -> None:
    pieces = step(3, 4, graph_launches=20, graph_kernels=120, loose_launches=30, loose_names=("attention",))
    judged = run([pieces, step(3, 4)], CAPTURED)
    assert reasons(judged) == [Reason.OUTSIDE_GRAPH, None]
    assert judged.steps[0].miss is not None
    assert judged.steps[0].miss.detail == "30 kernels beside 20 graph launches, most often attention"
    assert reasons(run([pieces, step(3, 4)], CAPTURED, expect="piecewise")) == [None, None]


def test_unusual(step: MakeStep, run: MakeRun) -> None:
    twice = step(3, 4, graph_launches=2, graph_kernels=80, graphs=("g4", "g4"))
    judged = run([step(3, 4), step(3, 4), twice], CAPTURED)
    assert reasons(judged) == [None, None, Reason.UNUSUAL]
    assert reasons(run([step(3, 4), step(3, 4), twice], CAPTURED, expect_launches=2)) == [Reason.UNUSUAL] * 2 + [None]


def test_lost_in_one_rank_only(step: MakeStep, run: MakeRun) -> None:
    kept = [step(4, 4, lane=1) for _ in range(5)]
    judged = run([step(4, 4), step(4, 4), step(4), step(4), step(4), *kept], CAPTURED)
    assert reasons(judged) == [None, None] + [Reason.LOST] * 3 + [None] * 5
