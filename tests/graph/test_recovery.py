"""Generators after a capture that failed: over a stand-in for `CUDAGraph`, and on a GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
import torch

from cudagraph_doctor.graph.cuda import CudaBackend
from cudagraph_doctor.graph.recovery import forget_captured_events, free_generators


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
    monkeypatch.setattr(torch.cuda, "Stream", lambda priority: None)
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


def test_every_captured_event_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured on an H200, torch 2.11: "invalid argument", once for each: it is taken out of the queue before."""
    events = ["ready", "captured", "captured", "ready"]

    def empty_cache() -> None:
        while events:
            if events.pop() == "captured":
                raise RuntimeError("CUDA error: invalid argument")

    monkeypatch.setattr(torch._C, "_host_emptyCache", empty_cache, raising=False)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    forget_captured_events()
    assert events == []
    monkeypatch.delattr(torch._C, "_host_emptyCache")
    forget_captured_events()


@pytest.mark.gpu
def test_pinned_memory_that_a_capture_read_and_dropped() -> None:
    if reason := CudaBackend.why_unusable():
        pytest.skip(reason)
    x, sources = torch.zeros(4, device="cuda"), [torch.ones(4).pin_memory() for _ in range(2)]
    before = torch.cuda.current_stream()
    with CudaBackend().installed():
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            while sources:
                x.copy_(sources.pop(), non_blocking=True)
        assert torch.cuda.current_stream() == before
        forget_captured_events()
        torch.zeros(4).pin_memory()
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            x.add_(1)


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
