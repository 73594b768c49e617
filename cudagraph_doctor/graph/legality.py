"""Which operators a capture refuses, by their tags and by what their arguments are: the one place that knows.

The emulation raises what is said here; the observation lists it. What was measured is in the conformance tests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from cudagraph_doctor.graph.illegal import Kind, Place
from cudagraph_doctor.graph.operators import Operator, Role


@dataclass(frozen=True, slots=True)
class Illegal:
    """Why one call of an operator cannot be captured."""

    kind: Kind
    by_torch: bool = False
    """torch refuses it before CUDA sees it."""
    detail: str = ""
    """What about the call is illegal, where it is not the operator as such: "with a boolean mask"."""


def illegal(
    operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any], place: Place, place_of: Callable[[Any], Place]
) -> Illegal | None:
    """Why this call, which has to do with device memory, cannot be captured; None if it can.

    Args:
        operator: what is called.
        args: its arguments.
        kwargs: its arguments by name.
        place: where its output goes.
        place_of: where a tensor lies.
    """
    match operator.role:
        case Role.HOST_READ:
            return _host_read(operator, args, kwargs)
        case Role.COPY:
            return _copy(operator, args, kwargs, place, place_of)
        case Role.INDEX:
            return _index(operator, args, kwargs, place_of)
        case _:
            return None


def _host_read(operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Illegal | None:
    if operator.base == "aten::bincount":
        return Illegal(Kind.SHAPE_FROM_VALUES, by_torch=True)
    if operator.base == "aten::repeat_interleave" and operator.argument("output_size", args, kwargs) is not None:
        return None
    if operator.base == "aten::equal" and _same(args[0], args[1]):
        return None
    return Illegal(Kind.SHAPE_FROM_VALUES if operator.dynamic_shape else Kind.HOST_READ)


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether `equal` sees without looking that they are the same elements."""
    return a.data_ptr() == b.data_ptr() and a.shape == b.shape and a.stride() == b.stride() and a.dtype == b.dtype


def copied_places(
    operator: Operator, args: tuple[Any, ...], place: Place, place_of: Callable[[Any], Place]
) -> tuple[Place, Place]:
    """(from, to) of a copying operator whose output goes to `place`."""
    if operator.base == "aten::copy_":
        return place_of(args[1]), place_of(args[0])
    return place_of(args[0]), place


def _copy(
    operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any], place: Place, place_of: Callable[[Any], Place]
) -> Illegal | None:
    source, target = copied_places(operator, args, place, place_of)
    if (target is Place.DEVICE) == (source is Place.DEVICE):
        return None
    non_blocking = bool(operator.argument("non_blocking", args, kwargs))
    host = source if target is Place.DEVICE else target
    if operator.base == "aten::_to_copy" and target is not Place.DEVICE and non_blocking:
        host = Place.PINNED  # torch allocates page-locked memory for such a copy by itself
    if host is not Place.PINNED:
        reads = target is not Place.DEVICE
        return Illegal(Kind.HOST_READ if reads else Kind.PAGEABLE_COPY, by_torch=True)
    if not non_blocking:
        return Illegal(Kind.BLOCKING_COPY, detail="between host and device without non_blocking=True")
    return None


def _index(
    operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any], place_of: Callable[[Any], Place]
) -> Illegal | None:
    indices = [index for index in operator.argument("indices", args, kwargs) if index is not None]
    values = operator.argument("values", args, kwargs)
    host_value = values is not None and values.dim() == 0 and place_of(values) is not Place.DEVICE
    masks = [index for index in indices if index.dtype in (torch.bool, torch.uint8)]
    if masks and host_value and len(indices) == 1:
        return None  # becomes masked_fill
    if any(place_of(index) is not Place.DEVICE for index in indices):
        return Illegal(Kind.PAGEABLE_COPY, by_torch=True, detail="with indices that lie on the host")
    if host_value:
        return Illegal(Kind.PAGEABLE_COPY, by_torch=True, detail="with a value that lies on the host")
    if masks:
        return Illegal(Kind.SHAPE_FROM_VALUES, detail="with a boolean mask")
    return None
