"""Reads the nodes of a real cudaGraph_t into the graph model. `patching.py` changes them."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cudagraph_doctor.graph.addresses import Addresses
from cudagraph_doctor.graph.arguments import is_tensor_map
from cudagraph_doctor.graph.driver import DriverError, call, edges_of, nodes_of
from cudagraph_doctor.graph.fields import Field, copy_fields, fill_fields
from cudagraph_doctor.graph.functions import Kernels, Unreadable, kernel_arguments
from cudagraph_doctor.graph.model import GraphNode, NodeKind, Param, Pointer

_KINDS: Mapping[int, NodeKind] = {
    0: NodeKind.KERNEL,
    1: NodeKind.MEMCPY,
    2: NodeKind.MEMSET,
    3: NodeKind.HOST,
    4: NodeKind.CHILD,
    5: NodeKind.EMPTY,
    6: NodeKind.EVENT_WAIT,
    7: NodeKind.EVENT_RECORD,
    8: NodeKind.SEMAPHORE_SIGNAL,
    9: NodeKind.SEMAPHORE_WAIT,
    10: NodeKind.MEM_ALLOC,
    11: NodeKind.MEM_FREE,
    12: NodeKind.BATCH_MEM_OP,
    13: NodeKind.CONDITIONAL,
}
"""CUgraphNodeType -> kind."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A node's handle and its place in the numbering."""

    index: int
    handle: Any
    kind: NodeKind
    parent: int | None


def place(graph: Any) -> tuple[list[Placed], list[tuple[int, int]]]:
    """Number all nodes of a graph, those of a child graph after the node that holds it; and the edges in numbers.

    Raises DriverError if the graph cannot be listed at all.
    """
    placed: list[Placed] = []
    edges: list[tuple[int, int]] = []

    def descend(graph: Any, parent: int | None) -> None:
        numbers: dict[int, int] = {}
        for handle in nodes_of(graph):
            node = Placed(len(placed), handle, _kind_of(handle), parent)
            placed.append(node)
            numbers[int(handle)] = node.index
            for inner in _graphs_inside(node):
                descend(inner, node.index)
        edges.extend((numbers[source], numbers[target]) for source, target in edges_of(graph))

    descend(graph, None)
    return placed, edges


def _kind_of(handle: Any) -> NodeKind:
    try:
        return _KINDS.get(int(call("cuGraphNodeGetType", handle)), NodeKind.UNKNOWN)
    except DriverError:  # a type newer than these bindings
        return NodeKind.UNKNOWN


def _graphs_inside(node: Placed) -> list[Any]:
    """The graphs that a child or conditional node holds, as far as the driver tells them."""
    try:
        if node.kind is NodeKind.CHILD:
            return [call("cuGraphChildGraphNodeGetGraph", node.handle)]
        if node.kind is NodeKind.CONDITIONAL:
            return [body for body in call("cuGraphNodeGetParams", node.handle).conditional.phGraph_out if int(body)]
    except DriverError:
        pass  # `Reader` asks again and keeps the reason
    return []


class Reader:
    """Turns placed nodes into `GraphNode`s.

    Args:
        addresses: what names them.
        major: of the compute capability of the device that the graph is for.
    """

    def __init__(self, addresses: Addresses, major: int) -> None:
        self._addresses = addresses
        self._major = major
        self._kernels = Kernels()

    def read(self, placed: Sequence[Placed]) -> tuple[GraphNode, ...]:
        """Read all nodes; those that cannot be read are kept, with the reason."""
        with _collector_paused():
            return tuple(self._read(node) for node in placed)

    def _read(self, node: Placed) -> GraphNode:
        try:
            return self._readable(node)
        except (Unreadable, DriverError) as reason:
            return GraphNode(node.index, node.kind, str(node.kind), parent=node.parent, unreadable=str(reason))

    def _readable(self, node: Placed) -> GraphNode:
        handle = node.handle
        match node.kind:
            case NodeKind.KERNEL:
                return self._kernel(node, call("cuGraphKernelNodeGetParams", handle))
            case NodeKind.MEMCPY:
                copy = call("cuGraphMemcpyNodeGetParams", handle)
                return self._plain(node, self._fields(copy, copy_fields(copy)))
            case NodeKind.MEMSET:
                fill = call("cuGraphMemsetNodeGetParams", handle)
                return self._plain(node, self._fields(fill, fill_fields(fill)))
            case NodeKind.HOST:
                host = call("cuGraphHostNodeGetParams", handle)
                return self._plain(node, (_number(0, "function", host.fn), _number(1, "user_data", host.userData)))
            case NodeKind.EVENT_RECORD:
                return self._plain(node, (_number(0, "event", call("cuGraphEventRecordNodeGetEvent", handle)),))
            case NodeKind.EVENT_WAIT:
                return self._plain(node, (_number(0, "event", call("cuGraphEventWaitNodeGetEvent", handle)),))
            case NodeKind.MEM_ALLOC:
                memory = call("cuGraphMemAllocNodeGetParams", handle)
                self._addresses.add_graph_memory(int(memory.dptr), int(memory.bytesize))
                size = _number(1, "bytes", memory.bytesize)
                return self._plain(node, (self._address(0, "address", int(memory.dptr), "device"), size))
            case NodeKind.MEM_FREE:
                address = int(call("cuGraphMemFreeNodeGetParams", handle))
                return self._plain(node, (self._address(0, "address", address, "device"),))
            case NodeKind.EMPTY | NodeKind.CHILD:
                return self._plain(node, ())
            case NodeKind.CONDITIONAL:
                call("cuGraphNodeGetParams", handle)  # raises where the driver does not show the bodies
                return self._plain(node, ())
            case NodeKind.SEMAPHORE_SIGNAL | NodeKind.SEMAPHORE_WAIT | NodeKind.BATCH_MEM_OP:
                raise Unreadable(f"{node.kind} nodes are not read")
            case NodeKind.UNKNOWN:
                raise Unreadable("a kind of node that this version does not know")

    def _kernel(self, node: Placed, params: Any) -> GraphNode:
        name, unreadable = "kernel", ""
        read: tuple[Param, ...] = ()
        try:
            name = self._kernels.name(params)
            arguments, _ = kernel_arguments(params, self._kernels)
            read = tuple(
                Param(
                    index,
                    "",
                    argument.offset,
                    argument.data,
                    self._addresses.pointers(argument.data),
                    is_descriptor=is_tensor_map(argument, self._major),
                )
                for index, argument in enumerate(arguments)
            )
        except Unreadable as reason:
            unreadable = str(reason)
        return GraphNode(
            node.index,
            node.kind,
            name,
            grid=(params.gridDimX, params.gridDimY, params.gridDimZ),
            block=(params.blockDimX, params.blockDimY, params.blockDimZ),
            shared_bytes=params.sharedMemBytes,
            params=read,
            parent=node.parent,
            unreadable=unreadable,
        )

    def _plain(self, node: Placed, params: tuple[Param, ...]) -> GraphNode:
        return GraphNode(node.index, node.kind, str(node.kind), params=params, parent=node.parent)

    def _fields(self, params: Any, fields: Sequence[Field]) -> tuple[Param, ...]:
        return tuple(
            self._address(index, field.name, int(getattr(params, field.attribute)), field.address)
            if field.address
            else _number(index, field.name, getattr(params, field.attribute))
            for index, field in enumerate(fields)
        )

    def _address(self, index: int, name: str, address: int, where: str) -> Param:
        known = self._addresses
        region = known.describe_host(address) if where == "host" else known.describe(address)
        pointers = (Pointer(0, address, region),) if region else ()
        return Param(index, name, 8 * index, _bytes(address), pointers)


@contextlib.contextmanager
def _collector_paused() -> Iterator[None]:
    """Python's collector of cycles does not run inside the block.

    A large graph read is tens of thousands of objects without a cycle: looking for some took as long as reading.
    """
    runs = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if runs:
            gc.enable()


def _bytes(number: int) -> bytes:
    return number.to_bytes(8, "little")


def _number(index: int, name: str, number: Any) -> Param:
    return Param(index, name, 8 * index, _bytes(int(number)))


def kernel_names(graph: Any) -> tuple[str, ...]:
    """What each top-level node is: a kernel's name, otherwise its kind. Unknown functions read "kernel"."""
    kernels = Kernels()
    names = []
    for handle in nodes_of(graph):
        kind = _kind_of(handle)
        name = str(kind)
        if kind is NodeKind.KERNEL:
            with contextlib.suppress(Unreadable, DriverError):
                name = kernels.name(call("cuGraphKernelNodeGetParams", handle))
        names.append(name)
    return tuple(names)
