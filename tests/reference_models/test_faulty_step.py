"""Faults inside the step freeze what they should, and their twins nothing: each step by graph against eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from cudagraph_doctor.reference_models.faulty_step import LONG, PLANTED, STEPS_PLANNED_AT_ONCE, UPDATED_IN_STEP
from cudagraph_doctor.reference_models.loop import ReferenceLoop


@pytest.mark.parametrize("name", PLANTED)
def test_the_twin_is_sound(name: str, played: Callable[[Any], Any]) -> None:
    found = played(PLANTED[name][1])
    assert not any(found.old) and not any(found.fresh)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("position-by-value", [True] * 6),  # captured at offset 30 % 8
        ("branch-on-length", [False, False, False, True, True, True]),  # the longest request passes 33 in step 3
        ("weights-replaced", [False, False, False, True, True, True]),
        ("host-random-draw", [True] * 6),
    ],
)
def test_the_old_graph_is_wrong_and_a_fresh_one_right(
    name: str, wrong: list[bool], played: Callable[[Any], Any]
) -> None:
    found = played(PLANTED[name][0])
    assert found.old == wrong and not any(found.fresh)


def test_the_steps_above_are_where_things_change() -> None:
    assert LONG == 33 and UPDATED_IN_STEP == 3 and 30 % STEPS_PLANNED_AT_ONCE == 6


@pytest.mark.parametrize("twin", [False, True])
def test_positions_and_offset_add_up_to_the_sound_models_positions(world: Any, twin: bool) -> None:
    loop, sound = PLANTED["position-by-value"][twin](*world.model), ReferenceLoop(*world.model)
    for step in (0, 7, 8, 21):
        inputs, expected = loop.next_inputs(step, 5), sound.next_inputs(step, 5)
        assert torch.equal(inputs.positions + inputs.offset, expected.positions)  # type: ignore[attr-defined]
        assert (inputs.positions >= 0).all()
        assert torch.equal(loop.forward(inputs)["logits"], sound.forward(expected)["logits"])


@pytest.mark.parametrize("twin", [False, True])
def test_weights_are_updated_in_step_3_and_put_back_by_reset(world: Any, twin: bool) -> None:
    loop = PLANTED["weights-replaced"][twin](*world.model)
    parameter, first = loop.model.lm_head.weight, loop.model.lm_head.weight.clone()
    for step, factor in [(0, 1.0), (2, 1.0), (3, -0.5), (9, -0.5), (1, 1.0), (4, -0.5)]:
        loop.forward(loop.next_inputs(step, 2))
        assert torch.equal(loop.model.lm_head.weight, first * factor)
        assert (loop.model.lm_head.weight is parameter) == (twin or factor == 1.0)
    loop.reset()
    assert loop.model.lm_head.weight is parameter and torch.equal(parameter, first)
