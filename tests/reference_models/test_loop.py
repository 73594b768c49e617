"""The model as a LoopTarget keeps the contract."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cudagraph_doctor.reference_models.decode import PRESETS
from cudagraph_doctor.reference_models.loop import BUCKETS, ReferenceLoop
from cudagraph_doctor.reference_models.requests import MAX_ROWS
from cudagraph_doctor.target import LOOP_MEMBERS


def loop(place: Any, seed: int = 0) -> ReferenceLoop:
    return ReferenceLoop(PRESETS["tiny"], place.device, place.dtype, seed)


def test_it_has_what_a_loop_target_needs(place: Any) -> None:
    target = loop(place)
    assert all(hasattr(target, member) for member in LOOP_MEMBERS)
    assert target.buckets == BUCKETS == [1, 2, 4, 8, 16] and BUCKETS[-1] == MAX_ROWS


def test_every_batch_size_runs_at_any_step(place: Any) -> None:
    target = loop(place)
    for step in (0, 3, 25):
        for rows in range(1, MAX_ROWS + 1):
            outputs = target.forward(target.next_inputs(step, rows))
            assert outputs["logits"].shape == (rows, 64) and outputs["tokens"].shape == (rows,)
            assert outputs["logits"].isfinite().all()


@pytest.mark.parametrize("rows", [5, 7, 8])
def test_staged_and_padded_is_the_same_step(place: Any, rows: int) -> None:
    target, static = loop(place), loop(place).static_inputs(8)
    target.update(static, target.next_inputs(20, 8))
    fresh = target.next_inputs(2, rows)
    expected = target.forward(fresh)["logits"].float()
    state = {name: cache.clone() for name, cache in target.state().items()}
    target.reset()
    target.update(static, fresh)
    padded = target.forward(static)["logits"][:rows].float()
    bound = 1e-5 if place.dtype is torch.float32 else 3e-2
    assert (padded - expected).norm() / expected.norm() < bound
    for name, cache in target.state().items():
        assert (cache.float() - state[name].float()).norm() / state[name].float().norm() < bound


def test_steps_depend_on_the_state_and_reset_brings_it_back(place: Any) -> None:
    target = loop(place)
    inputs = target.next_inputs(1, 4)
    first = target.forward(inputs)["logits"].clone()
    for cache in target.state().values():
        cache.mul_(0.5)
    assert not torch.equal(target.forward(inputs)["logits"], first)
    target.reset()
    assert torch.equal(target.forward(inputs)["logits"], first)


def test_seeds_give_other_models_and_other_tokens(place: Any) -> None:
    one, other = loop(place, 1), loop(place, 2)
    assert not torch.equal(one.next_inputs(0, 16).input_ids, other.next_inputs(0, 16).input_ids)
    assert not torch.equal(one.model.lm_head.weight, other.model.lm_head.weight)


def test_the_default_preset_runs(place: Any) -> None:
    target = ReferenceLoop(PRESETS["default"], place.device, place.dtype, 0)
    assert target.forward(target.next_inputs(0, 3))["logits"].isfinite().all()
