"""`load`: names -> target."""

from __future__ import annotations

import pytest
import torch

from cudagraph_doctor.errors import UsageError
from cudagraph_doctor.reference_models import faulty_staging, load
from cudagraph_doctor.reference_models.loop import ReferenceLoop


def test_a_sound_loop_by_default() -> None:
    target = load(device="cpu:0")
    assert type(target) is ReferenceLoop
    assert target.config.num_layers == 4 and target.model.lm_head.weight.dtype is torch.float32


def test_preset_dtype_and_seed() -> None:
    target = load("loop", device="cpu:0", preset="tiny", dtype="bfloat16", seed=3)
    assert isinstance(target, ReferenceLoop)
    assert (target.config.num_layers, target.seed) == (2, 3)
    assert target.model.lm_head.weight.dtype is torch.bfloat16


def test_fault_and_twin() -> None:
    fault, twin = faulty_staging.PLANTED["seq-lens-rebound"]
    assert type(load(device="cpu:0", preset="tiny", fault="seq-lens-rebound")) is fault
    assert type(load(device="cpu:0", preset="tiny", fault="seq-lens-rebound", twin=True)) is twin


@pytest.mark.parametrize(
    ("arguments", "message", "fix"),
    [
        ({"fault": "seq-lens-rebond"}, 'no fault "seq-lens-rebond". Did you mean "seq-lens-rebound"?', "Use one of"),
        ({"form": "lop"}, 'no form "lop". Did you mean "loop"?', "loop, engine"),
        ({"preset": "huge"}, 'no preset "huge"', "tiny, default, large"),
        ({"dtype": "float16"}, 'no dtype "float16"', "float32"),
        ({"twin": True}, "no fault is named", "--fault NAME"),
        ({"form": "loop", "fault": "missing-reverse-event"}, "does not exist in the loop form", "reference:engine"),
        ({"device": "cuda", "dtype": "float32"}, "bfloat16 only", "Leave dtype out"),
    ],
)
def test_what_is_refused_and_with_which_words(arguments: dict[str, object], message: str, fix: str) -> None:
    with pytest.raises(UsageError) as raised:
        load(**{"device": "cpu:0", **arguments})  # type: ignore[arg-type]
    assert message in raised.value.what and fix in raised.value.fix
