"""Generators after a capture that failed: over a stand-in for `CUDAGraph`, and on a GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
import torch

from cudagraph_doctor.graph.cuda import CudaBackend
from cudagraph_doctor.graph.recovery import free_generators


class Graph:
    """What torch does with the generators of a capture, and in which order."""

    capturing: ClassVar[set[str]] = set()
    refuses: ClassVar[bool] = False

    def __init__(self) -> None:
        self._registered = {"default"}

    def register_generator_state(self, generator: Any) -> None:
        self._registered.add(generator)

    def capture_begin(self, capture_error_mode: str) -> None:
        Graph.capturing |= self._registered

    def capture_end(self) -> None:
        if Graph.refuses:
            raise RuntimeError("CUDA error: operation failed due to a previous error during capture")
        Graph.capturing -= self._registered


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Graph]]:
    zeros = torch.zeros
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "Stream", lambda: None)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch, "zeros", lambda n, device: zeros(n))
    yield Graph
    Graph.capturing, Graph.refuses = set(), False


def test_the_default_generator_and_those_given_stop_capturing(stand_in: type[Graph]) -> None:
    own: Any = "own"
    stand_in.capturing = {"default", "own", "another's"}
    free_generators([own])
    assert stand_in.capturing == {"another's"}


def test_where_nothing_can_be_captured_nothing_is_raised(stand_in: type[Graph]) -> None:
    stand_in.refuses = True
    free_generators()
    assert stand_in.capturing == {"default"}


@pytest.mark.gpu
def test_draws_after_a_capture_that_failed() -> None:
    """Measured on an H200 with torch 2.11: without it they raise "Offset increment outside graph capture [...]"."""
    if reason := CudaBackend.why_unusable():
        pytest.skip(reason)
    x, own = torch.ones(4, device="cuda"), torch.Generator("cuda").manual_seed(5)
    before, seed = torch.cuda.current_stream(), torch.cuda.initial_seed()
    with CudaBackend().installed():
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(own)
        try:
            with pytest.raises(RuntimeError), torch.cuda.graph(graph):
                x.uniform_().item()
        finally:
            torch.cuda.set_stream(before)
        free_generators([own])
        assert torch.cuda.current_stream() == before and torch.cuda.initial_seed() == seed
        x.uniform_()
        x.uniform_(generator=own)
        assert own.initial_seed() == 5
