"""What must not happen to device tensors while a capture is under way, operator by operator."""

from __future__ import annotations

from typing import Any

import torch

from cudagraph_doctor.graph.emulation.capture import Capture
from cudagraph_doctor.graph.emulation.faults import PAGEABLE_COPY, UNREGISTERED_GENERATOR, cuda_error
from cudagraph_doctor.graph.emulation.generators import same
from cudagraph_doctor.graph.emulation.memory import Place, memory_of
from cudagraph_doctor.graph.emulation.operators import Operator, Role


def check(capture: Capture, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any], place: Place) -> None:
    """Raise what torch or CUDA raises for an operator that cannot be captured; `place` is where its output goes."""
    if capture.invalid is not None and operator.launches:
        raise cuda_error(901)
    if operator.role is Role.HOST_READ:
        _check_host_read(capture, operator, args, kwargs)
    elif operator.role is Role.COPY:
        _check_copy(capture, operator, args, kwargs, place)
    elif operator.role is Role.INDEX:
        _check_index(capture, operator, args, kwargs)
    elif operator.random:
        generator = operator.argument("generator", args, kwargs)
        if generator is not None and not any(same(generator, known) for known in capture.generators):
            raise RuntimeError(UNREGISTERED_GENERATOR)


def _place(tensor: torch.Tensor) -> Place:
    memory = memory_of(tensor)
    return Place.HOST if memory is None else memory.place


def _check_host_read(capture: Capture, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if operator.base == "aten::bincount":
        raise RuntimeError(PAGEABLE_COPY)
    if operator.base == "aten::repeat_interleave" and operator.argument("output_size", args, kwargs) is not None:
        return
    if operator.base == "aten::equal" and _same(args[0], args[1]):
        return
    raise capture.fail(900, operator.name)


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether `equal` sees without looking that they are the same elements."""
    return a.data_ptr() == b.data_ptr() and a.shape == b.shape and a.stride() == b.stride() and a.dtype == b.dtype


def _check_copy(
    capture: Capture, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any], place: Place
) -> None:
    if operator.base == "aten::copy_":
        target, source = _place(args[0]), _place(args[1])
    else:
        target, source = place, _place(args[0])
    if (target is Place.DEVICE) == (source is Place.DEVICE):
        return
    non_blocking = bool(operator.argument("non_blocking", args, kwargs))
    host = source if target is Place.DEVICE else target
    if operator.base == "aten::_to_copy" and target is Place.HOST and non_blocking:
        host = Place.PINNED  # torch allocates page-locked memory for such a copy by itself
    if host is not Place.PINNED:
        raise RuntimeError(PAGEABLE_COPY)
    if not non_blocking:
        raise capture.fail(900, f"{operator.name} between host and device without non_blocking=True")


def _check_index(capture: Capture, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    indices = [index for index in operator.argument("indices", args, kwargs) if index is not None]
    values = operator.argument("values", args, kwargs)
    host_value = values is not None and values.dim() == 0 and _place(values) is not Place.DEVICE
    masks = [index for index in indices if index.dtype in (torch.bool, torch.uint8)]
    if masks and host_value and len(indices) == 1:
        return  # becomes masked_fill
    if any(_place(index) is not Place.DEVICE for index in indices) or host_value:
        raise RuntimeError(PAGEABLE_COPY)
    if masks:
        raise capture.fail(900, f"{operator.name} with a boolean mask")
