"""Which calls of operators a capture cannot take, told from tags and arguments alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cudagraph_doctor.graph.illegal import Kind, Place
from cudagraph_doctor.graph.legality import Illegal, copied_places, illegal
from cudagraph_doctor.graph.operators import learn

aten = torch.ops.aten
DEVICE = torch.arange(6.0)
OTHER = torch.arange(6.0)
INDICES = torch.tensor([0, 2, 1])
MASK = DEVICE > 2
HOST, SCALAR, PINNED = torch.ones(6), torch.tensor(1.0), torch.ones(6)
PLACES = {id(HOST): Place.HOST, id(SCALAR): Place.HOST, id(PINNED): Place.PINNED}
INTO = Place.DEVICE
CPU = {"device": torch.device("cpu")}


def judged(func: Any, *args: Any, place: Place = INTO, **kwargs: Any) -> Illegal | None:
    return illegal(learn(func), args, kwargs, place, lambda tensor: PLACES.get(id(tensor), Place.DEVICE))


@pytest.mark.parametrize(
    ("call", "kind", "by_torch"),
    [
        (judged(aten._local_scalar_dense.default, DEVICE), Kind.HOST_READ, False),
        (judged(aten.equal.default, DEVICE, OTHER), Kind.HOST_READ, False),
        (judged(aten.nonzero.default, DEVICE), Kind.SHAPE_FROM_VALUES, False),
        (judged(aten.masked_select.default, DEVICE, MASK), Kind.SHAPE_FROM_VALUES, False),
        (judged(aten.repeat_interleave.Tensor, INDICES), Kind.SHAPE_FROM_VALUES, False),
        (judged(aten.bincount.default, INDICES), Kind.SHAPE_FROM_VALUES, True),
        (judged(aten.index.Tensor, DEVICE, [MASK]), Kind.SHAPE_FROM_VALUES, False),
        (judged(aten.index.Tensor, DEVICE, [None, HOST]), Kind.PAGEABLE_COPY, True),
        (judged(aten.index_put_.default, DEVICE, [INDICES], SCALAR), Kind.PAGEABLE_COPY, True),
        (judged(aten.index_put_.default, DEVICE, [MASK], SCALAR), None, False),
        (judged(aten.copy_.default, DEVICE, HOST), Kind.PAGEABLE_COPY, True),
        (judged(aten.copy_.default, DEVICE, HOST, True), Kind.PAGEABLE_COPY, True),
        (judged(aten.copy_.default, HOST, DEVICE), Kind.HOST_READ, True),
        (judged(aten.copy_.default, DEVICE, PINNED), Kind.BLOCKING_COPY, False),
        (judged(aten.copy_.default, DEVICE, PINNED, True), None, False),
        (judged(aten.copy_.default, DEVICE, OTHER), None, False),
        (judged(aten._to_copy.default, DEVICE, place=Place.HOST, **CPU), Kind.HOST_READ, True),
        (judged(aten._to_copy.default, DEVICE, place=Place.HOST, non_blocking=True, **CPU), None, False),
        (judged(aten._to_copy.default, HOST), Kind.PAGEABLE_COPY, True),
        (judged(aten._to_copy.default, DEVICE, dtype=torch.float64), None, False),
        (judged(aten.add.Tensor, DEVICE, OTHER), None, False),
    ],
)
def test_told_from_tags_and_arguments(call: Illegal | None, kind: Kind | None, by_torch: bool) -> None:
    assert (call and call.kind) == kind and bool(call and call.by_torch) == by_torch


def test_what_needs_no_look_at_the_values() -> None:
    assert judged(aten.equal.default, DEVICE, DEVICE) is None
    assert judged(aten.repeat_interleave.Tensor, INDICES, output_size=3) is None


def test_from_where_to_where_a_copy_goes() -> None:
    def places(func: Any, *args: Any) -> tuple[Place, Place]:
        return copied_places(learn(func), args, Place.DEVICE, lambda tensor: PLACES.get(id(tensor), Place.DEVICE))

    assert places(aten.copy_.default, HOST, PINNED) == (Place.PINNED, Place.HOST)
    assert places(aten._to_copy.default, PINNED) == (Place.PINNED, Place.DEVICE)
