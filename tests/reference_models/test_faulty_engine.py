"""Faults of the engine show when steps follow each other freely, and their twins' steps are eager's."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cudagraph_doctor.reference_models.engine import ReferenceEngine
from cudagraph_doctor.reference_models.faulty_engine import PLANTED


def play(engine: ReferenceEngine, on: bool) -> list[torch.Tensor]:
    engine.graphs(on)
    engine.reset()
    return [engine.step(i, n)["logits"] for i, n in enumerate([4, 4, 3, 4, 1, 2])]


@pytest.mark.parametrize("twin", [False, True])
def test_kept_output(world: Any, twin: bool) -> None:
    engine = PLANTED["kept-output-overwritten"][twin](*world.model)
    wrong = [world.differs(a, b) for a, b in zip(play(engine, True), play(engine, False), strict=True)]
    assert wrong == ([False] * 6 if twin else [False] + [True] * 5)


@pytest.mark.parametrize("name", PLANTED)
@pytest.mark.parametrize("twin", [False, True])
def test_one_step_at_a_time_nothing_is_wrong(world: Any, name: str, twin: bool) -> None:
    engine = PLANTED[name][twin](*world.model)
    for i, n in enumerate([4, 3, 1, 4]):
        results = []
        for on in (False, True):
            engine.graphs(on)
            engine.reset()
            results.append(engine.step(i, n)["logits"])
        assert not world.differs(results[1], results[0])


def test_the_penalty_is_for_what_the_step_before_put_out(world: Any) -> None:
    engine, sound = PLANTED["kept-output-overwritten"][1](*world.model), ReferenceEngine(*world.model)
    first, second = (engine.step(i, 4)["logits"] for i in (0, 1))
    plain = [sound.step(i, 4)["logits"] for i in (0, 1)]
    assert torch.equal(first, plain[0])
    assert not world.differs(second, plain[1] - 0.5 * plain[0])
    engine.reset()
    assert torch.equal(engine.step(0, 4)["logits"], plain[0])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("twin", [False, True])
def test_reverse_event(late_steps: Any, twin: bool) -> None:
    one_at_a_time, run_ahead = late_steps(PLANTED["missing-reverse-event"][twin])
    same = [torch.equal(a["logits"], b["logits"]) for a, b in zip(one_at_a_time, run_ahead, strict=True)]
    assert all(same) if twin else not any(same[:-2])
