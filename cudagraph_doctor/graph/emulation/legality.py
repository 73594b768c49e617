"""Raises in a capture what torch or CUDA would, operator by operator."""

from __future__ import annotations

from typing import Any

import torch

from cudagraph_doctor.graph.emulation.capture import Capture
from cudagraph_doctor.graph.emulation.faults import PAGEABLE_COPY, UNREGISTERED_GENERATOR, cuda_error
from cudagraph_doctor.graph.emulation.generators import same
from cudagraph_doctor.graph.emulation.memory import memory_of
from cudagraph_doctor.graph.illegal import Place
from cudagraph_doctor.graph.legality import illegal
from cudagraph_doctor.graph.operators import Operator


def check(capture: Capture, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any], place: Place) -> None:
    """Raise what torch or CUDA raises for an operator that cannot be captured; `place` is where its output goes."""
    if capture.invalid is not None and operator.launches:
        raise cuda_error(901)
    refused = illegal(operator, args, kwargs, place, _place)
    if refused is not None:
        if refused.by_torch:
            raise RuntimeError(PAGEABLE_COPY)
        raise capture.fail(900, f"{operator.name} {refused.detail}".rstrip())
    if operator.random:
        generator = operator.argument("generator", args, kwargs)
        if generator is not None and not any(same(generator, known) for known in capture.generators):
            raise RuntimeError(UNREGISTERED_GENERATOR)


def _place(tensor: torch.Tensor) -> Place:
    memory = memory_of(tensor)
    return Place.HOST if memory is None else memory.place
