"""The parameters of a recorded operator: as bytes, as addresses, as Python values; and set anew from these."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from cudagraph_doctor.errors import Inconclusive
from cudagraph_doctor.graph.backend import Edit
from cudagraph_doctor.graph.emulation.memory import Heap, place_of
from cudagraph_doctor.graph.emulation.recording import Node
from cudagraph_doctor.graph.illegal import Place


@dataclass(frozen=True, slots=True)
class Slot:
    """One parameter: an argument, or the memory that a result is written to."""

    index: int
    """Position in the operator's schema; results come after all arguments."""
    name: str
    value: Any


def slots(node: Node) -> list[Slot]:
    """Positional arguments, arguments by name, results: in this order."""
    names = node.operator.arguments
    found = [Slot(at, names[at] if at < len(names) else "", value) for at, value in enumerate(node.args)]
    for name, value in node.kwargs.items():
        found.append(Slot(names.index(name) if name in names else len(found), name, value))
    first = max(len(names), len(found))
    for at, (_, target) in enumerate(node.outputs):
        found.append(Slot(first + at, "out" if len(node.outputs) == 1 else f"out{at}", target))
    return found


def is_by_value(tensor: torch.Tensor) -> bool:
    """Whether the recorded tensor is a copy of host memory, taken when it was captured."""
    return place_of(tensor) in (None, Place.HOST)


def encode(value: Any) -> bytes:
    """A parameter's bytes, little-endian.

    Addresses and integers in 8 bytes, floats as double, host tensors with their contents, other things as text. What is
    seen of a tensor at its address is in `views`.
    """
    return b"".join(data for data, _ in pieces(value))


def pieces(value: Any) -> Iterator[tuple[bytes, torch.Tensor | None]]:
    """The parts that a parameter's bytes consist of, each with the tensor if the part is its address."""
    if isinstance(value, torch.Tensor):
        if is_by_value(value):
            yield bytes(value.contiguous().reshape(-1).view(torch.uint8).tolist()) if value.numel() else b"", None
        else:
            yield struct.pack("<Q", value.data_ptr()), value
    elif isinstance(value, (list, tuple)):
        tensors = any(isinstance(item, torch.Tensor) for item in value)
        for item in value:
            yield from [(bytes(8), None)] if item is None and tensors else pieces(item)
    else:
        yield _number(value), None


def views(value: Any) -> bytes:
    """Sizes and strides of the device tensors in a parameter, 8 bytes each: kernels are given them by value."""
    if isinstance(value, torch.Tensor):
        return b"" if is_by_value(value) else struct.pack(f"<{2 * value.dim()}q", *value.shape, *value.stride())
    return b"".join(map(views, value)) if isinstance(value, (list, tuple)) else b""


def _number(value: Any) -> bytes:
    if value is None:
        return b""
    if isinstance(value, bool):
        return struct.pack("<?", value)
    if isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
        return struct.pack("<q", value)
    if isinstance(value, float):
        return struct.pack("<d", value)
    if isinstance(value, complex):
        return struct.pack("<dd", value.real, value.imag)
    return str(value).encode()


def plain(value: Any) -> Any:
    """The Python value of a parameter; None for addresses and for host tensors of more than one element."""
    if isinstance(value, torch.Tensor):
        return value.item() if is_by_value(value) and value.numel() == 1 else None
    if value is None or isinstance(value, (bool, int, float, complex, str)):
        return value
    if isinstance(value, (list, tuple)):
        return None if any(isinstance(item, torch.Tensor) for item in value) else [plain(item) for item in value]
    return str(value)


def patched(
    node: Node, edits: Sequence[Edit], heap: Heap
) -> tuple[tuple[Any, ...], dict[str, Any], tuple[tuple[int, torch.Tensor], ...]]:
    """(args, kwargs, outputs) of the node with these edits. Raises Inconclusive where one cannot be made."""
    new = {edit.param: edit for edit in edits}
    known = slots(node)
    missing = new.keys() - {slot.index for slot in known}
    if missing:
        raise Inconclusive(
            f"{node.operator.name} has no parameter {min(missing)}",
            seen=", ".join(f"{slot.index} {slot.name}" for slot in known),
            fix="read the graph again: it is not the one that the edit was made for",
        )
    values = [_decode(slot, new[slot.index], node, heap) if slot.index in new else slot.value for slot in known]
    args, rest = values[: len(node.args)], values[len(node.args) :]
    kwargs = dict(zip(node.kwargs, rest, strict=False))
    targets = rest[len(kwargs) :]
    outputs = tuple((position, target) for (position, _), target in zip(node.outputs, targets, strict=True))
    return tuple(args), kwargs, outputs


def _decode(slot: Slot, edit: Edit, node: Node, heap: Heap) -> Any:
    """The new value: `edit.value` if it has one, else what its bytes mean for a parameter of this type."""
    old = slot.value
    if isinstance(old, torch.Tensor) and not is_by_value(old):
        return _at(old, edit.data, heap)
    if isinstance(old, torch.Tensor):
        if edit.value is not None:
            return torch.full_like(old, edit.value)
        return torch.frombuffer(bytearray(edit.data), dtype=old.dtype).reshape(old.shape)
    if edit.value is not None or old is None:
        return edit.value
    for kind, code in ((bool, "<?"), (int, "<q"), (float, "<d")):
        if isinstance(old, kind):
            return struct.unpack(code, edit.data)[0]
    if isinstance(old, (list, tuple)) and all(isinstance(item, torch.Tensor) and not is_by_value(item) for item in old):
        addresses = [edit.data[8 * at : 8 * at + 8] for at in range(len(old))]
        sizes = io.BytesIO(edit.data[8 * len(old) :])
        return [_at(one, at + sizes.read(len(views(one))), heap) for one, at in zip(old, addresses, strict=True)]
    if isinstance(old, (list, tuple)) and all(type(item) is int for item in old):
        return list(struct.unpack(f"<{len(old)}q", edit.data))
    raise Inconclusive(
        f'parameter {slot.index} "{slot.name}" of {node.operator.name} cannot be set from bytes',
        seen=f"a {type(old).__name__}",
        fix="give the new Python value",
    )


def _at(like: torch.Tensor, data: bytes, heap: Heap) -> torch.Tensor:
    """The view at another address, and of other sizes and strides where `data` goes on with them (see `views`).

    Raises Inconclusive if there is no device memory of that size.
    """
    address = struct.unpack_from("<Q", data)[0]
    numbers = struct.unpack_from(f"<{2 * like.dim()}q", data, 8) if len(data) > 8 else (*like.shape, *like.stride())
    shape, stride = numbers[: like.dim()], numbers[like.dim() :]
    found = heap.storage_at(address)
    if found is not None:
        storage, _ = found
        offset, odd = divmod(address - storage.data_ptr(), like.element_size())
        extent = 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
        if not odd and (offset + extent) * like.element_size() <= storage.nbytes():
            return torch.empty(0, dtype=like.dtype, device="cpu").set_(storage, offset, shape, stride)
    raise Inconclusive(
        f"no device memory for a tensor of shape {tuple(shape)} at address {address:#x}",
        fix="keep the memory alive while the graph is patched",
    )
