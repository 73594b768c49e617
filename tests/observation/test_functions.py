"""Indexing by a list, which CUDA copies where no operator tells of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from torch.overrides import TorchFunctionMode

from cudagraph_doctor.graph.emulated import EmulatedBackend
from cudagraph_doctor.graph.emulation.faults import PAGEABLE_COPY
from cudagraph_doctor.graph.illegal import Kind
from cudagraph_doctor.observation.functions import lists_in
from cudagraph_doctor.observation.model import Observation, ToldBy
from cudagraph_doctor.observation.observe import Observer
from cudagraph_doctor.progress import Silent
from tests.observation.conftest import Player

DEVICE = "cpu:0"


@pytest.mark.parametrize("index", [[0, 2], (slice(None), [1]), range(2), [[0], [1]], (None, numpy.arange(2)), [True]])
def test_indices_that_are_copied(index: Any) -> None:
    assert lists_in(index)


@pytest.mark.parametrize("index", [1, slice(2), None, ..., (0, 1), [], torch.arange(2), (torch.arange(2), 0), True])
def test_indices_that_are_not(index: Any) -> None:
    assert not lists_in(index)


class AsOnCuda(TorchFunctionMode):
    """Takes lists to the device below the dispatcher, which a capture refuses."""

    def __init__(self, backend: EmulatedBackend) -> None:
        super().__init__()  # type: ignore[no-untyped-call, unused-ignore]
        self.backend = backend

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in (torch.Tensor.__getitem__, torch.Tensor.__setitem__) or not lists_in(args[1]):
            return func(*args, **(kwargs or {}))
        if self.backend._device.capture is not None:
            raise RuntimeError(PAGEABLE_COPY)
        return func(args[0], torch.tensor(args[1], device=DEVICE), *args[2:])


def seen(make: Callable[[], Callable[[], object]]) -> Observation:
    backend = EmulatedBackend()
    with backend.installed(), AsOnCuda(backend):
        return Observer(lambda opened: Player(make()), backend, Silent()).observe()


def test_it_is_named_once_a_capture_has_failed_of_it() -> None:
    def make() -> Callable[[], object]:
        x, out = torch.arange(4.0, device=DEVICE), torch.zeros(2, device=DEVICE)

        def body() -> None:
            out.copy_(x[[0, 2]])
            x[[1, 3]] = out
            x.sum().item()

        return body

    found = seen(make)
    assert found.complete and [refusal.told_by for refusal in found.refusals] == [ToldBy.CALL] * 3
    named = [(r.operation.name, r.operation.kind, r.operation.location.code) for r in found.refusals]  # type: ignore[union-attr]
    assert named == [
        ("Tensor.__getitem__", Kind.PAGEABLE_COPY, "out.copy_(x[[0, 2]])"),
        ("Tensor.__setitem__", Kind.PAGEABLE_COPY, "x[[1, 3]] = out"),
        ("Tensor.item", Kind.HOST_READ, "x.sum().item()"),
    ]


def test_another_copy_that_nobody_tells_of_ends_it() -> None:
    backend = EmulatedBackend()

    def body() -> None:
        if backend._device.capture is not None:
            raise RuntimeError(PAGEABLE_COPY)

    with backend.installed():
        found = Observer(lambda opened: Player(body), backend, Silent()).observe()
    [refusal] = found.refusals
    assert refusal.told_by is ToldBy.TRACEBACK and not found.complete
