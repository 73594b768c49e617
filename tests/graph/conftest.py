"""Captures on a real GPU, for the tests marked `gpu`; a made-up CUDA driver for the others."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from cudagraph_doctor.graph import driver
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

    @staticmethod
    def add_child(inner: torch.cuda.CUDAGraph) -> None:
        """Put `inner` into the graph that the current stream captures, as a child node after what is there."""
        api, stream = driver.bindings(), torch.cuda.current_stream().cuda_stream
        _, _, outer, before, *_ = driver.call("cuStreamGetCaptureInfo", stream)
        raw = api.CUgraph(torch._C._CUDAGraph.raw_cuda_graph(inner))
        child = driver.call("cuGraphAddChildGraphNode", outer, before, len(before), raw)
        instead = int(api.CUstreamUpdateCaptureDependencies_flags.CU_STREAM_SET_CAPTURE_DEPENDENCIES)
        driver.call("cuStreamUpdateCaptureDependencies", stream, [child], None, 1, instead)

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


class MadeUpDriver:
    """Graphs of made-up nodes behind the driver functions that are called for them. Handles are plain numbers.

    A kernel's arguments lie in real memory of this process, in either form; `executed` has the arguments of each node
    as they were set in the executable graph.
    """

    def __init__(self) -> None:
        self.graphs: dict[int, list[int]] = {}
        self.edges: dict[int, list[tuple[int, int]]] = {}
        self.nodes: dict[int, tuple[int, Any]] = {}
        self.layouts: dict[int, list[tuple[int, int]]] = {}
        self.executed: dict[int, Any] = {}
        self._memory: list[Any] = []

    def graph(self, *nodes: int, edges: list[tuple[int, int]] | None = None) -> int:
        """A graph of these nodes."""
        self.graphs[handle := 1000 + len(self.graphs)] = list(nodes)
        self.edges[handle] = edges or []
        return handle

    def node(self, kind: int, params: Any = None) -> int:
        """A node of this CUgraphNodeType."""
        self.nodes[handle := 5000 + len(self.nodes)] = (kind, params)
        return handle

    def kernel(self, *arguments: bytes, packed: bool = False, function: int = 0, **more: Any) -> int:
        """A kernel node whose arguments follow each other without gaps."""
        function = function or 100 + len(self.layouts)
        at = [sum(len(argument) for argument in arguments[:index]) for index in range(len(arguments) + 1)]
        self.layouts[function] = [(start, len(argument)) for start, argument in zip(at, arguments, strict=False)]
        params = SimpleNamespace(func=function, kern=0, sharedMemBytes=0, extra=0, kernelParams=0)
        for side in ("gridDim", "blockDim"):
            vars(params).update({side + axis: 1 for axis in "XYZ"})
        if packed:
            buffer, size = self._at(b"".join(arguments)), self._at(struct.pack("<Q", at[-1]))
            params.extra = self._at(struct.pack("<5Q", 1, buffer, 2, size, 0))
        else:
            pointers = [self._at(argument) for argument in arguments]
            params.kernelParams = self._at(struct.pack(f"<{len(pointers)}Q", *pointers))
        vars(params).update(more)
        return self.node(0, params)

    def _at(self, data: bytes) -> int:
        self._memory.append(buffer := ctypes.create_string_buffer(data, max(len(data), 1)))
        return ctypes.addressof(buffer)

    def cuGraphGetNodes(self, graph: int, count: int) -> tuple[int, list[int], int]:
        return 0, self.graphs[graph][:count], len(self.graphs[graph])

    def cuGraphGetEdges(self, graph: int, count: int) -> tuple[int, list[int], list[int], list[None], int]:
        edges = self.edges[graph]
        return 0, [a for a, _ in edges[:count]], [b for _, b in edges[:count]], [None] * count, len(edges)

    def cuGraphNodeGetType(self, node: int) -> tuple[int, int]:
        if self.nodes[node][0] < 0:
            raise ValueError("-1 is not a valid CUgraphNodeType")
        return 0, self.nodes[node][0]

    def _params(self, node: int) -> tuple[Any, ...]:
        return 0, SimpleNamespace(**vars(self.nodes[node][1]))

    cuGraphKernelNodeGetParams = cuGraphMemcpyNodeGetParams = cuGraphMemsetNodeGetParams = _params
    cuGraphHostNodeGetParams = cuGraphMemAllocNodeGetParams = _params

    def _number(self, node: int) -> tuple[int, int]:
        return 0, self.nodes[node][1]

    cuGraphChildGraphNodeGetGraph = cuGraphMemFreeNodeGetParams = cuGraphEventRecordNodeGetEvent = _number

    def cuFuncGetName(self, function: int) -> tuple[int, bytes | None]:
        return (0, f"kernel_{function}".encode()) if function in self.layouts else (1, None)

    cuKernelGetName = cuFuncGetName

    def cuFuncGetParamInfo(self, function: int, index: int) -> tuple[int, int, int]:
        layout = self.layouts.get(function)
        if layout is None:
            return 400, 0, 0  # CUDA_ERROR_INVALID_HANDLE
        return (0, *layout[index]) if index < len(layout) else (1, 0, 0)

    cuKernelGetParamInfo = cuFuncGetParamInfo

    def cuCtxGetCurrent(self) -> tuple[int, int]:
        return 0, 1

    def cuGraphExecKernelNodeSetParams(self, executable: int, node: int, params: Any) -> tuple[int]:
        layout = self.layouts[params.func]
        if params.extra:
            buffer = ctypes.c_uint64.from_address(params.extra + 8).value
            values = [ctypes.string_at(buffer + offset, size) for offset, size in layout]
        else:
            pointers = (ctypes.c_uint64 * len(layout)).from_address(params.kernelParams)
            values = [ctypes.string_at(at, size) for at, (_, size) in zip(pointers, layout, strict=True)]
        self.executed[node] = values
        return (0,)

    def _set(self, executable: int, node: int, params: Any, context: int) -> tuple[int]:
        if getattr(params, "Height", 1) > 1:
            return (1,)
        self.executed[node] = vars(params)
        return (0,)

    cuGraphExecMemcpyNodeSetParams = cuGraphExecMemsetNodeSetParams = _set


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> MadeUpDriver:
    """A driver without a GPU, in place of cuda-bindings."""
    made_up = MadeUpDriver()
    monkeypatch.setattr(driver, "bindings", lambda: made_up)
    return made_up
