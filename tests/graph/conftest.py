"""Captures on a real GPU, for the tests marked `gpu`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from cudagraph_doctor.graph.backend import LiveGraph
from cudagraph_doctor.graph.cuda import CudaBackend
from cudagraph_doctor.graph.model import CapturedGraph
from cudagraph_doctor.graph.names import readable
from cudagraph_doctor.graph.regions import NamedRange, Regions


def regions_of(**tensors: torch.Tensor) -> Regions:
    """Each tensor's memory as an input of its name."""
    return Regions(NamedRange("input", name, t.data_ptr(), t.numel() * t.element_size()) for name, t in tensors.items())


class Gpu:
    """The backend with its hooks in, and the two things that every test does with it."""

    def __init__(self, backend: CudaBackend) -> None:
        self.backend = backend

    def capture(self, step: Callable[[], object], warm: bool = True) -> tuple[torch.cuda.CUDAGraph, LiveGraph]:
        """Warm `step` up (cuBLAS handles, Triton compilation) and capture it."""
        if warm:
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                step()
            torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        return graph, self.backend.log.graphs[-1]

    def read(self, live: LiveGraph, **tensors: torch.Tensor) -> CapturedGraph:
        """Read the graph and print it: pytest shows it if the test fails."""
        graph = self.backend.read(live, regions_of(**tensors))
        show(graph)
        return graph


def show(graph: CapturedGraph) -> None:
    """Print a graph's nodes with their parameters."""
    print(f"pool {graph.pool}, edges {graph.edges}, not read {graph.not_read}")
    for node in graph.nodes:
        print(
            f"{node.index} {node.kind} {readable(node.name)} [{node.name}] {node.grid} {node.block} {node.unreadable}"
        )
        for param in node.params:
            pointers = ", ".join(f"+{p.offset}: {p.address:#x} = {p.region}" for p in param.pointers)
            data = f"{param.data[:32].hex()} ({len(param.data)} bytes)"
            print(f"    {param.index} {param.name} at {param.offset}: {data} {pointers}")


@pytest.fixture
def gpu() -> Iterator[Gpu]:
    """The CUDA backend with its hooks in."""
    if reason := CudaBackend.why_unusable():
        pytest.skip(reason)
    backend = CudaBackend()
    with backend.installed():
        yield Gpu(backend)
    torch.cuda.synchronize()


@pytest.fixture
def stream_restored() -> Iterator[Any]:
    """The current stream is the default one again after the test (a failed capture leaves its own)."""
    before = torch.cuda.current_stream()
    yield before
    torch.cuda.set_stream(before)
