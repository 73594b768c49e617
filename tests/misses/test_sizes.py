"""Where the sizes of buckets come from, best source first, and which bucket served a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.misses.conftest import MakeRun, MakeStep


def test_given(step: MakeStep, run: MakeRun) -> None:
    judged = run([step(3, 4), step(7, 8)], buckets=(1, 2, 4, 8))
    assert (judged.buckets.sizes, judged.buckets.origin, judged.buckets.exact) == ((1, 2, 4, 8), "--buckets", True)
    assert [s.bucket for s in judged.steps] == [4, 8]
    assert [s.padding for s in judged.steps] == [1, 1]


def test_captures(step: MakeStep, run: MakeRun) -> None:
    judged = run([step(3, 4)], captured=(8, 4))
    assert (judged.buckets.sizes, judged.buckets.origin) == ((4, 8), "labels of captures")
    assert judged.steps[0].bucket == 4


def test_labels_of_steps(step: MakeStep, run: MakeRun) -> None:
    judged = run([step(3, 4, named=True), step(9)])
    assert (judged.buckets.sizes, judged.buckets.origin) == ((4,), "labels of replayed steps")


def test_a_graph_serves_at_least_the_largest_batch_seen(step: MakeStep, run: MakeRun) -> None:
    judged = run([step(5, 8), step(7, 8), step(2, 4)])
    assert (judged.buckets.sizes, judged.buckets.exact) == ((2, 7), False)
    assert [s.bucket for s in judged.steps] == [7, 7, 2]


def test_the_label_of_an_eager_step_is_no_bucket_that_there_is(step: MakeStep, run: MakeRun) -> None:
    judged = run([step(3, 4, named=True), step(7, meant=8)])
    assert judged.buckets.sizes == (4,)
    assert judged.steps[1].bucket is None


def test_nothing_tells(step: MakeStep, run: MakeRun) -> None:
    judged = run([step(None, 4), step(3, 4, graphs=("",))])
    assert judged.buckets.sizes == ()
    assert [s.bucket for s in judged.steps] == [None, None]


def test_tokens_where_the_engine_counts_tokens(step: MakeStep, run: MakeRun) -> None:
    judged = run([step(2, 8, tokens=6, in_tokens=True)], captured=(8,))
    assert (judged.steps[0].bucket, judged.steps[0].padding) == (8, 2)
