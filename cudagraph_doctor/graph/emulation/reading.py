"""A recording as the graph model: parameters as bytes with the pointers in them, and parameters set from bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import torch

from cudagraph_doctor.errors import Inconclusive
from cudagraph_doctor.graph.backend import Edit
from cudagraph_doctor.graph.emulation.memory import Heap, Place, memory_of, storage_of
from cudagraph_doctor.graph.emulation.recording import Node, Recording
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

def _slots(node: Node) -> list[tuple[int, str, Any]]:
    """(index, name, value) of each parameter: the arguments in the schema's order, then what it allocated."""
    names = node.operator.arguments
    slots = [(at, names[at] if at < len(names) else "", value) for at, value in enumerate(node.args)]
    for name, value in node.kwargs.items():
        slots.append((names.index(name) if name in names else len(slots), name, value))
    first = max(len(names), len(slots))
    for position, (_, target) in enumerate(node.outputs):
        slots.append((first + position, "out" if len(node.outputs) == 1 else f"out{position}", target))
    return slots


def _params(node: Node, describe: Describe) -> list[Param]:
    params, offset = [], 0
    for index, name, value in _slots(node):
        data = encode(value)
        pointers = []
        for position, tensor in enumerate(_tensors(value)):
            if not is_by_value(tensor):
                pointers.append(Pointer(8 * position, tensor.data_ptr(), describe(tensor)))
        params.append(Param(index, name, offset, data, tuple(pointers), _plain(value)))
        offset += len(data)
    return params


def is_by_value(tensor: torch.Tensor) -> bool:
    """Whether the recorded tensor is a copy of host memory, taken when it was captured."""
    memory = memory_of(tensor)
    return memory is None or memory.place is Place.HOST


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [item for item in value if isinstance(item, torch.Tensor)]
    return []


def encode(value: Any) -> bytes:
    """A parameter's bytes, little-endian: addresses and integers in 8, floats as double, other things as text."""
    if isinstance(value, torch.Tensor):
        if is_by_value(value):
            return bytes(value.contiguous().reshape(-1).view(torch.uint8).tolist()) if value.numel() else b""
        return struct.pack("<Q", value.data_ptr())
    if value is None:
        return b""
    if isinstance(value, bool):
        return struct.pack("<?", value)
    if isinstance(value, int):
        return struct.pack("<q", value) if -(1 << 63) <= value < 1 << 63 else str(value).encode()
    if isinstance(value, float):
        return struct.pack("<d", value)
    if isinstance(value, complex):
        return struct.pack("<dd", value.real, value.imag)
    if isinstance(value, (list, tuple)):
        return b"".join(encode(item) for item in value)
    return str(value).encode()


def _plain(value: Any) -> Any:
    """The Python value of a parameter that is no address."""
    if isinstance(value, torch.Tensor):
        return value.item() if is_by_value(value) and value.numel() == 1 else None
    if value is None or isinstance(value, (bool, int, float, complex, str)):
        return value
    if isinstance(value, (list, tuple)):
        return None if _tensors(value) else [_plain(item) for item in value]
    return str(value)


def edited(node: Node, edits: Sequence[Edit], heap: Heap) -> dict[int, Any]:
    """The new values of the node's parameters, by index. Raises Inconclusive where one cannot be set."""
    slots = {index: value for index, _, value in _slots(node)}
    new = {}
    for edit in edits:
        if edit.param not in slots:
            raise Inconclusive(
                f"{node.operator.name} has no parameter {edit.param}", seen=f"parameters {sorted(slots)}",
                fix="read the graph again: it is not the one that the edit was made for",
            )
        new[edit.param] = _decode(slots[edit.param], edit, node, heap)
    return new


def _decode(old: Any, edit: Edit, node: Node, heap: Heap) -> Any:
    if isinstance(old, torch.Tensor):
        if not is_by_value(old):
            return _at(old, struct.unpack("<Q", edit.data)[0], heap)
        if edit.value is not None:
            return torch.full_like(old, edit.value)
        return torch.frombuffer(bytearray(edit.data), dtype=old.dtype).reshape(old.shape)
    if edit.value is not None or old is None:
        return edit.value
    if isinstance(old, bool):
        return struct.unpack("<?", edit.data)[0]
    if isinstance(old, int):
        return struct.unpack("<q", edit.data)[0]
    if isinstance(old, float):
        return struct.unpack("<d", edit.data)[0]
    if isinstance(old, (list, tuple)) and old and len(_tensors(old)) == len(old):
        addresses = struct.unpack(f"<{len(old)}Q", edit.data)
        return [_at(tensor, address, heap) for tensor, address in zip(old, addresses, strict=True)]
    raise Inconclusive(
        f"parameter {edit.param} of {node.operator.name} cannot be set from bytes",
        seen=f"a {type(old).__name__}",
        fix="give the new Python value",
    )


def _at(like: torch.Tensor, address: int, heap: Heap) -> torch.Tensor:
    """The same view at another address. Raises Inconclusive if no live memory of that size is there."""
    found = heap.storage_at(address)
    if found is not None:
        storage, _ = found
        offset, odd = divmod(address - storage.data_ptr(), like.element_size())
        extent = 1 + sum((size - 1) * stride for size, stride in zip(like.shape, like.stride(), strict=True))
        if not odd and (offset + extent) * like.element_size() <= storage.nbytes():
            return torch.empty(0, dtype=like.dtype).set_(storage, offset, like.shape, like.stride())
    raise Inconclusive(
        f"no live device memory for a tensor of shape {tuple(like.shape)} at address {address:#x}",
        fix="keep the memory alive while the graph is patched",
    )


def with_parameters(node: Node, new: dict[int, Any]) -> tuple[tuple[Any, ...], dict[str, Any], Any]:
    """(args, kwargs, outputs) of the node with some parameters replaced."""
    args, kwargs, outputs = list(node.args), dict(node.kwargs), list(node.outputs)
    for position, (index, name, _) in enumerate(_slots(node)):
        if index not in new:
            continue
        if position < len(args):
            args[position] = new[index]
        elif position < len(args) + len(kwargs):
            kwargs[name] = new[index]
        else:
            at = position - len(args) - len(kwargs)
            outputs[at] = (outputs[at][0], new[index])
    return tuple(args), kwargs, tuple(outputs)
