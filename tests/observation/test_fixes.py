"""A fix for each class, and better ones for operators that are known."""

from __future__ import annotations

import pytest

from cudagraph_doctor.graph.illegal import Kind
from cudagraph_doctor.observation.fixes import fix_of
from cudagraph_doctor.observation.model import Operation


@pytest.mark.parametrize("kind", Kind)
def test_every_class_has_a_fix(kind: Kind) -> None:
    fix = fix_of(Operation("aten.unheard_of.default", kind, None))
    assert fix.endswith(".") and len(fix) > 30


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("aten.repeat_interleave.Tensor", Kind.SHAPE_FROM_VALUES, "output_size="),
        ("aten.index.Tensor", Kind.SHAPE_FROM_VALUES, "torch.where(mask"),
        ("aten.index.Tensor", Kind.PAGEABLE_COPY, "tensor on the device"),
        ("torch.tensor", Kind.PAGEABLE_COPY, "before the capture"),
        ("aten._to_copy.default", Kind.HOST_READ, "non_blocking=True"),
        ("aten._to_copy.default", Kind.PAGEABLE_COPY, "static device buffer"),
        ("Tensor.item", Kind.HOST_READ, "after the replay"),
        ("Tensor.__bool__", Kind.HOST_READ, "torch.where"),
        ("torch.tensor", Kind.OTHER_THREAD, "thread_local"),
        ("aten.nonzero.default", Kind.FIRST_USE, "warm-up"),
    ],
)
def test_the_fix_fits_the_operator(name: str, kind: Kind, words: str) -> None:
    assert words in fix_of(Operation(name, kind, None))


def test_checkpointing_has_a_switch_for_it() -> None:
    operation = Operation(
        "torch.cuda.get_rng_state", Kind.GENERATOR, None, detail="by checkpointing, with preserve_rng_state=True"
    )
    assert "preserve_rng_state=False" in fix_of(operation)
