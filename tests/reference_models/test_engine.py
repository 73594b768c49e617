"""The engine: its graphs give what eager gives, whatever the order of batch sizes, and steps may overlap."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import nvtx
import pytest
import torch

from cudagraph_doctor.reference_models.engine import HALVES, ReferenceEngine
from cudagraph_doctor.reference_models.loop import BUCKETS, ReferenceLoop
from cudagraph_doctor.target import ENGINE_MEMBERS

SIZES = [16, 15, 9, 16, 4, 3, 3, 4, 1, 1, 2, 8, 5, 16]


def play(engine: ReferenceEngine, on: bool, sizes: list[int]) -> list[dict[str, torch.Tensor]]:
    engine.graphs(on)
    engine.reset()
    return [engine.step(i, n) for i, n in enumerate(sizes)]


def test_it_has_what_an_engine_target_needs(world: Any) -> None:
    engine = ReferenceEngine(*world.model)
    assert all(hasattr(engine, member) for member in ENGINE_MEMBERS)
    assert engine.pipelined and set(engine.batch_sizes) >= set(BUCKETS)


def test_eager_steps_are_the_loops_steps(world: Any) -> None:
    engine, loop = ReferenceEngine(*world.model, enforce_eager=True), ReferenceLoop(*world.model)
    assert not engine.captured
    for i, n in enumerate(SIZES):
        outputs, expected = engine.step(i, n), loop.forward(loop.next_inputs(i, n))
        assert torch.equal(outputs["logits"], expected["logits"])
        assert torch.equal(outputs["tokens"], expected["tokens"])


def test_graphs_give_what_eager_gives(world: Any) -> None:
    engine = ReferenceEngine(*world.model)
    eager = play(engine, False, SIZES)
    state = {name: cache.clone() for name, cache in engine.model.caches().items()}
    for i, outputs in enumerate(play(engine, True, SIZES)):
        assert outputs["logits"].shape == eager[i]["logits"].shape
        assert not world.differs(outputs["logits"], eager[i]["logits"]), f"step {i}"
    for name, cache in engine.model.caches().items():
        assert not world.differs(cache, state[name])


def test_a_full_bucket_is_bit_for_bit_eager(world: Any) -> None:
    engine = ReferenceEngine(*world.model)
    sizes = [16, 8, 4, 2, 1, 16]
    for eager, graph in zip(play(engine, False, sizes), play(engine, True, sizes), strict=True):
        assert torch.equal(eager["logits"], graph["logits"]) and torch.equal(eager["tokens"], graph["tokens"])


def test_what_a_step_returns_is_the_callers(world: Any) -> None:
    engine = ReferenceEngine(*world.model)
    first = engine.step(0, 4)
    kept = {name: output.clone() for name, output in first.items()}
    engine.step(2, 4)
    assert all(torch.equal(first[name], kept[name]) for name in kept)


def test_a_step_can_be_repeated_from_the_state_before_it(world: Any) -> None:
    engine = ReferenceEngine(*world.model)
    play(engine, True, SIZES[:3])
    before = {name: cache.clone() for name, cache in engine.model.caches().items()}
    first = engine.step(3, 7)["logits"]
    for name, cache in engine.model.caches().items():
        cache.copy_(before[name])
    assert torch.equal(engine.step(3, 7)["logits"], first)


def test_keys(world: Any) -> None:
    engine = ReferenceEngine(*world.model, enforce_eager=True)
    assert engine.key(4, 3) == (4, "even") and engine.key(5, 3) == (4, "odd") and engine.key(0, 16) == (16, "even")


def test_recapture_makes_new_graphs_and_leaves_the_caches_alone(world: Any) -> None:
    engine = ReferenceEngine(*world.model)
    eager, old = play(engine, False, SIZES), dict(engine.captured)
    play(engine, True, SIZES)
    before = {name: cache.clone() for name, cache in engine.model.caches().items()}
    engine.recapture()
    assert all(torch.equal(cache, before[name]) for name, cache in engine.model.caches().items())
    assert set(engine.captured) == set(old) == {(bucket, half) for bucket in BUCKETS for half in HALVES}
    assert not set(engine.captured.values()) & set(old.values())
    for outputs, expected in zip(play(engine, True, SIZES), eager, strict=True):
        assert not world.differs(outputs["logits"], expected["logits"])


def test_ranges_name_step_batch_and_bucket(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ranges = []

    @contextmanager
    def annotate(text: str) -> Iterator[None]:
        ranges.append(text)
        yield

    monkeypatch.setattr(nvtx, "annotate", annotate)
    engine = ReferenceEngine(*world.model)
    assert ranges == [f"capture bucket={bucket}" for bucket in (16, 16, 8, 8, 4, 4, 2, 2, 1, 1)]
    ranges.clear()
    engine.step(12, 3)
    engine.graphs(False)
    engine.step(13, 3)
    assert ranges == ["decode step=12 bs=3 bucket=4", "decode step=13 bs=3"]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_the_host_may_run_ahead(late_steps: Any) -> None:
    one_at_a_time, run_ahead = late_steps(ReferenceEngine)
    assert all(torch.equal(a["logits"], b["logits"]) for a, b in zip(one_at_a_time, run_ahead, strict=True))
