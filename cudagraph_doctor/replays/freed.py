"""Memory of no owner that graphs read: freed since the capture, or given to somebody else by now.

Right today proves nothing: it is until the allocator hands the block out. So the block, which nobody owns, is filled
with zeros right before the replay: if the result changes, the graph reads it. The same is tried on memory that a tensor
owns which was not there at the capture; that alone is no fault, so it is only told of steps that are wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from cudagraph_doctor.errors import Inconclusive
from cudagraph_doctor.graph.backend import Block, LiveGraph
from cudagraph_doctor.graph.model import CapturedGraph
from cudagraph_doctor.proof.abandoned import belongs_there
from cudagraph_doctor.proof.arms import Arm, Arms, Result, span
from cudagraph_doctor.proof.compare import Level, compare, worst
from cudagraph_doctor.proof.repair import try_out
from cudagraph_doctor.proof.subject import Held, Planned
from cudagraph_doctor.replays.candidates import kernel_name


@dataclass(frozen=True, slots=True)
class Lost:
    """Memory that a graph reads although whoever it belonged to is gone."""

    at: Planned
    reader: str
    """The kernel and the parameter that point there."""
    bytes: int
    owner: str = ""
    """Who has it by now; "" if nobody has."""
    address: int = 0
    """Where it points."""
    belongs: str = ""
    """The weight that belongs there: with what it holds by now the step is as eager is."""


def lost(arms: Arms, at: Planned, held: Sequence[Held], graphs: Sequence[CapturedGraph | None]) -> list[Lost]:
    """What the graphs of a step read of it, shown by force.

    Args:
        arms: at the saved state of the step.
        at: the step.
        held: its graphs.
        graphs: the same, read.
    """
    found: list[Lost] = []
    plain: Result | None = None
    owners = {name: span(tensor) for name, tensor in arms.look_around().tensors.items()}
    for one, graph in zip(held, graphs, strict=True):
        free, known = arms.backend.scratch(""), [span(tensor) for tensor in one.paths.values()]
        for address, reader in _nobodys(graph):
            block = next((b for b in free if b.address <= address < b.address + b.bytes), None)
            owner = "" if block else _owner(address, owners, known)
            if block is None and owner:
                block = Block(*owners[owner])
            if block is None or any(other.reader == reader for other in found):
                continue
            plain = plain or arms.run(Arm.REPLAYED, at)
            with _filled(arms, block):
                forced = arms.run(Arm.REPLAYED, at)
            if compare(forced.outputs, plain.outputs):
                belongs = _belongs(arms, at, address, graphs, plain)
                found.append(Lost(at, reader, block.bytes, owner, address, belongs))
    return found


def _belongs(arms: Arms, at: Planned, address: int, graphs: Sequence[CapturedGraph | None], plain: Result) -> str:
    """The weight that heals the step there; "" if none does, or nothing is wrong with it."""
    remedies = belongs_there(arms, address, graphs)
    eager = arms.run(Arm.EAGER, at) if remedies else plain
    if worst(compare(plain.outputs, eager.outputs)) is not Level.LARGE:
        return ""
    healing = (one for one in remedies if not compare(try_out(arms, at, [one]).outputs, eager.outputs))
    return next((one.name for one in healing), "")


def _nobodys(graph: CapturedGraph | None) -> Iterator[tuple[int, str]]:
    """Addresses of device memory without a name, each once, with who points there."""
    seen: set[int] = set()
    for node in graph.nodes if graph else ():
        for param in node.params:
            for pointer in param.pointers:
                if pointer.region.is_nobodys and pointer.address not in seen:
                    seen.add(pointer.address)
                    yield pointer.address, f"{kernel_name(node)}, parameter {param.index}"


def _owner(address: int, owners: Mapping[str, tuple[int, int]], known: Sequence[tuple[int, int]]) -> str:
    """The tensor that has the address now, if none had it that was known at the capture."""
    if any(start <= address < start + size for start, size in known):
        return ""
    return next((name for name, (start, size) in owners.items() if start <= address < start + size), "")


@contextmanager
def _filled(arms: Arms, block: Block) -> Iterator[None]:
    """Inside, every replay finds zeros there; what was there is put back after."""
    undo: list[tuple[torch.Tensor, torch.Tensor]] = []

    def fill(_live: LiveGraph) -> None:
        with arms.backend.own_memory(), torch.inference_mode():
            try:
                memory = arms.backend.bytes_of(block)
            except Inconclusive:  # gone by now
                return
            undo.append((memory, memory.clone()))
            memory.zero_()

    with arms.backend.log.listening(replaying=fill):
        try:
            yield
        finally:
            arms.backend.synchronize()
            with arms.backend.own_memory(), torch.inference_mode():
                for memory, before in reversed(undo):
                    memory.copy_(before)
