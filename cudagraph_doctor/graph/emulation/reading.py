"""A recording as the graph model: each operator a node, each argument a parameter whose addresses are named."""

from __future__ import annotations

from collections.abc import Callable

import torch

from cudagraph_doctor.graph.emulation.memory import Heap, memory_of, storage_of
from cudagraph_doctor.graph.emulation.parameters import pieces, plain, slots, views
from cudagraph_doctor.graph.emulation.recording import Node, Recording
from cudagraph_doctor.graph.illegal import Place
from cudagraph_doctor.graph.model import CapturedGraph, GraphNode, Param, Pointer, Region
from cudagraph_doctor.graph.regions import Regions

Describe = Callable[[torch.Tensor], Region]


def read(recording: Recording, heap: Heap, regions: Regions, key: str) -> CapturedGraph:
    """The recorded operators as graph nodes, in order of capture."""
    own = {id(memory) for memory in recording.allocated}

    def describe(tensor: torch.Tensor) -> Region:
        return _region(tensor, heap, regions, own)

    nodes = tuple(
        GraphNode(
            index=index,
            kind=node.operator.kind,
            name=node.operator.name,
            params=tuple(_params(node, describe)),
            origin=node.origin,
        )
        for index, node in enumerate(recording.nodes)
    )
    edges = tuple((before, index) for index, node in enumerate(recording.nodes) for before in sorted(node.after))
    return CapturedGraph(key=key, nodes=nodes, edges=edges, pool=recording.pool)


def _region(tensor: torch.Tensor, heap: Heap, regions: Regions, own: set[int]) -> Region:
    """What the tensor's address means now."""
    storage, memory = storage_of(tensor), memory_of(tensor)
    offset = tensor.data_ptr() - storage.data_ptr() if storage is not None else 0
    if memory is None or memory.place is Place.HOST:
        return Region("pageable", "", offset)
    if memory.place is Place.DEVICE and id(memory) not in own and heap.freed(memory):
        return Region("freed", "", offset)
    named = regions.find(tensor.data_ptr())
    if named is not None:
        return named
    if memory.place is Place.PINNED:
        return Region("pinned", "", offset)
    if id(memory) in own:
        return Region("pool", str(memory.ordinal), offset)
    return Region("unnamed", "", offset)


def _params(node: Node, describe: Describe) -> list[Param]:
    params, offset = [], 0
    for slot in slots(node):
        data, pointers = b"", []
        for part, tensor in pieces(slot.value):
            if tensor is not None:
                pointers.append(Pointer(len(data), tensor.data_ptr(), describe(tensor)))
            data += part
        data += views(slot.value)
        params.append(Param(slot.index, slot.name, offset, data, tuple(pointers), plain(slot.value)))
        offset += len(data)
    return params
