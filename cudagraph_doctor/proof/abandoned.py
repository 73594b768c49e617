"""Memory that a graph reads and no name leads to any more: was it that of a tensor whose name is another's by now?

An engine that puts a new buffer in the place of the one that it captured, before anybody took down the names, leaves
such memory behind. What the name leads to now is offered as what belongs there; repair tells whether it does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch

from cudagraph_doctor.errors import Inconclusive
from cudagraph_doctor.graph.backend import Block
from cudagraph_doctor.graph.model import CapturedGraph, Pointer
from cudagraph_doctor.proof.arms import Arms, span
from cudagraph_doctor.proof.compare import same_bits
from cudagraph_doctor.proof.repair import Cause, Remedy
from cudagraph_doctor.proof.scene import Scene
from cudagraph_doctor.proof.weights import weight_names

_ROUNDED = 512
"""Bytes: sizes of CUDA blocks are multiples of it."""


def abandoned_remedies(arms: Arms, scene: Scene, graphs: Sequence[CapturedGraph | None]) -> list[Remedy]:
    """What tensors hold that no graph of the step reads, over memory of their size that graphs read without a name.

    Numbers that may be indices are written where they are such as were there, or where no other tensor fits: an index
    that means nothing to the kernel may be an illegal access.

    Args:
        arms: of the subject.
        scene: the tensors around the bad replay.
        graphs: its graphs, read.
    """
    offered = _unread({**_weights(arms), **scene.live, **scene.contents}, graphs)
    addresses = dict.fromkeys(p.address for p in pointers(graphs) if p.region.is_nobodys)
    return [remedy for address in addresses for remedy in _remedies(arms, address, offered)]


def belongs_there(arms: Arms, address: int, graphs: Sequence[CapturedGraph | None]) -> list[Remedy]:
    """The same for one address, by the weights alone: what steps find there may change, but not what belongs there."""
    return _remedies(arms, address, _unread(_weights(arms), graphs))


def pointers(graphs: Iterable[CapturedGraph | None]) -> list[Pointer]:
    """All addresses that graphs have as parameters."""
    return [p for graph in graphs if graph for node in graph.nodes for param in node.params for p in param.pointers]


def _unread(tensors: Mapping[str, torch.Tensor], graphs: Sequence[CapturedGraph | None]) -> dict[str, torch.Tensor]:
    read = {pointer.region.name for pointer in pointers(graphs)}
    return {name: tensor for name, tensor in tensors.items() if name not in read}


def _weights(arms: Arms) -> dict[str, torch.Tensor]:
    around = arms.look_around().tensors
    return {name: tensor.detach() for name, tensor in around.items() if isinstance(tensor, torch.nn.Parameter)}


def _remedies(arms: Arms, address: int, offered: Mapping[str, torch.Tensor]) -> list[Remedy]:
    fitting, weights = list(_fitting(arms, address, offered)), weight_names(arms)
    found = []
    for name, buffer, right in fitting:
        if same_bits(buffer, right) or not (len(fitting) == 1 or _is_safe(buffer, right)):
            continue
        kind = "weight" if name in weights else "root"
        found.append(Remedy(Cause.REBOUND, name, kind, "", buffer, right, buffer.clone()))
    return found


def _fitting(
    arms: Arms, address: int, offered: Mapping[str, torch.Tensor]
) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """Name, the memory as a tensor like that of the name, and what that holds."""
    around = [span(tensor) for tensor in arms.look_around().tensors.values()]
    if any(start <= address < start + size for start, size in around):
        return  # somebody has it by now
    free, owned = (_room(blocks, address) for blocks in (arms.backend.scratch(""), arms.backend.blocks()))
    for name, value in offered.items():
        # free blocks that lie side by side are one
        fits = value.nbytes <= free or 0 <= owned - value.nbytes < _ROUNDED
        if fits and value.is_contiguous():
            try:
                memory = arms.backend.bytes_of(Block(address, value.nbytes))
            except Inconclusive:  # gone by now
                return
            yield name, memory.view(value.dtype).view(value.shape), value


def _room(blocks: Sequence[Block], address: int) -> int:
    """Bytes from the address to the end of the block that it lies in; 0 if it lies in none."""
    ends = (b.address + b.bytes for b in blocks if b.address <= address < b.address + b.bytes)
    return next(ends, address) - address


def _is_safe(buffer: torch.Tensor, right: torch.Tensor) -> bool:
    if right.dtype.is_floating_point:
        return True
    return bool((right.min() >= buffer.min()) & (right.max() <= buffer.max()))
