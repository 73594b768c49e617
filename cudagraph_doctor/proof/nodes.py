"""Two captures of one step, node by node: which launch or by-value parameter differs, and is it the culprit?

Only candidates come from here: parameters carry uninitialised bytes, and addresses differ for good reasons. `repair`
decides.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cudagraph_doctor.graph.backend import Edit, LiveGraph
from cudagraph_doctor.graph.model import CapturedGraph, GraphNode, NodeKind, Param, Pointer, Region
from cudagraph_doctor.graph.names import readable
from cudagraph_doctor.graph.values import guess
from cudagraph_doctor.proof.repair import Cause, Remedy

_OWN = ("pool", "input", "freed", "unnamed")
"""Pointers that differ between two captures by right: each has its own pool and its own static inputs."""


@dataclass(frozen=True, slots=True)
class Unlike:
    """The first place where two captures launch different things."""

    index: int
    old: GraphNode | None
    new: GraphNode | None

    def __str__(self) -> str:
        old = readable(self.old.name) if self.old else "nothing"
        new = readable(self.new.name) if self.new else "nothing"
        if self.old and self.new and old == new:
            return f"node {self.index}: {old} with grid {self.old.grid} then, {self.new.grid} now"
        return f"node {self.index}: {old} then, {new} now"


def first_unlike(old: CapturedGraph, new: CapturedGraph) -> Unlike | None:
    """The first node whose kind, name or launch configuration differs; None if the lists agree.

    Where only one of the lists has nodes of its own there, the other has nothing, rather than the node behind them.
    """
    for index in range(max(len(old.nodes), len(new.nodes))):
        a = old.nodes[index] if index < len(old.nodes) else None
        b = new.nodes[index] if index < len(new.nodes) else None
        if a is None or b is None or _launch(a) != _launch(b):
            more = len(old.nodes) - len(new.nodes)
            gone = more > 0 and _work(old.nodes[index + more :]) == _work(new.nodes[index:])
            come = more < 0 and _work(old.nodes[index:]) == _work(new.nodes[index - more :])
            return Unlike(index, None if come else a, None if gone else b)
    return None


def _launch(node: GraphNode) -> tuple[object, ...]:
    return (node.kind, node.name, node.grid, node.block, node.shared_bytes)


def _work(nodes: Iterable[GraphNode]) -> list[tuple[NodeKind, str]]:
    return [(node.kind, node.name) for node in nodes]


def baked_remedies(pairs: Iterable[tuple[LiveGraph, CapturedGraph, CapturedGraph]]) -> list[Remedy]:
    """One remedy for each by-value parameter of a graph that its counterpart, captured at other values, has otherwise.

    The same parameter of the same kernel with the same two values is one remedy, however many layers and graphs of the
    step launch it.

    Args:
        pairs: the graph to be patched, what it launches, and what its counterpart launches.
    """
    found: dict[tuple[str, str, str], Remedy] = {}
    for live, old, new in pairs:
        for a, b in zip(old.nodes, new.nodes, strict=False):
            if a.kind is not b.kind or a.name != b.name or a.parent is not None:
                continue
            for p, q in zip(a.params, b.params, strict=False):
                edit = _edit(a.index, p, q)
                if edit is not None:
                    key, remedy = _remedy(a, p, q, edit)
                    found.setdefault(key, remedy).edits += ((live, edit),)
    return list(found.values())


def _remedy(node: GraphNode, old: Param, new: Param, edit: Edit) -> tuple[tuple[str, str, str], Remedy]:
    """A remedy without its edits, and what other parameters have to share with this one to be mended by it."""
    pointer = _moved(edit, old, new)
    if pointer is not None:  # an address: what it belongs to says more than its bytes
        before = next((one for one in old.pointers if one.offset == pointer.offset), None)
        remedy = _other_memory(before, pointer.region)
        return ("moved", remedy.kind, remedy.name), remedy
    was, expected = _values(old, new, edit)
    name = _name(node, old)
    remedy = Remedy(Cause.BAKED, name, "parameter", was=was, expected=expected, notes={"opaque": old.is_descriptor})
    return (name, repr(was), repr(expected)), remedy


def _other_memory(before: Pointer | None, now: Region) -> Remedy:
    """A remedy for an address, without its edits; it tells which tensor was there where that had a name of its own."""
    remedy = Remedy(
        Cause.REBOUND, now.name, now.kind, notes={"instead_of_nobodys": before is not None and before.region.is_nobodys}
    )
    if before is not None and before.region.kind not in _OWN and before.region.name != now.name:
        remedy.was, remedy.expected = before.region.name, now.name
    return remedy


def harmful_remedies(pairs: Iterable[tuple[LiveGraph, CapturedGraph, CapturedGraph]]) -> list[Remedy]:
    """The reverse, where the old graph is gone: what it launched, for the one captured now, which is right.

    Where the old one points at somebody's memory, and the new one at memory without a name, nobody has put another
    tensor in the place of his own: he was given memory that was another's at the capture.
    """
    found = baked_remedies((live, new, old) for live, old, new in pairs)
    for remedy in found:
        if remedy.cause is Cause.REBOUND and remedy.notes["instead_of_nobodys"]:
            remedy.cause = Cause.REUSED
    return found


def address_suspects(old: CapturedGraph, new: CapturedGraph) -> list[Remedy]:
    """Named memory that a graph captured now reads where the old one, which is gone, read something else.

    Nothing is tried with the old address: that memory may be gone too.
    """
    found: dict[str, Remedy] = {}
    for a, b in zip(old.nodes, new.nodes, strict=False):
        if a.kind is not b.kind or a.name != b.name:
            continue
        for p, q in zip(a.params, b.params, strict=False):
            there = {pointer.offset: pointer for pointer in p.pointers}
            for pointer in q.pointers:
                before = there.get(pointer.offset)
                named = pointer.region.kind not in _OWN
                if before and named and before.address != pointer.address and before.region != pointer.region:
                    found.setdefault(pointer.region.name, _other_memory(before, pointer.region))
    return list(found.values())


def _edit(node: int, old: Param, new: Param) -> Edit | None:
    if len(old.data) != len(new.data):
        return None
    if old.value is not None or new.value is not None:
        return Edit(node, old.index, new.data, new.value) if old.value != new.value else None
    data = bytearray(new.data)
    here = {p.offset: p for p in old.pointers}
    there = {p.offset: p for p in new.pointers}
    for offset in here.keys() | there.keys():
        a, b = here.get(offset), there.get(offset)
        # a pointer is only put in where it names memory of the user's that is not the same as before
        named = b is not None and b.region.kind not in _OWN
        if not named or (a is not None and a.region == b.region and a.address == b.address):  # type: ignore[union-attr]
            data[offset : offset + 8] = old.data[offset : offset + 8]
    return Edit(node, old.index, bytes(data)) if bytes(data) != old.data else None


def _moved(edit: Edit, old: Param, new: Param) -> Pointer | None:
    """What the parameter points at now, if nothing but one of its addresses would be changed."""
    for pointer in new.pointers:
        word = slice(pointer.offset, pointer.offset + 8)
        if old.data[word] != edit.data[word] == new.data[word] and pointer.region.kind not in _OWN:
            return pointer
    return None


def _name(node: GraphNode, param: Param) -> str:
    kernel = readable(node.name) if node.kind is NodeKind.KERNEL else node.name
    return f"{kernel}, parameter {param.index}" + (f" ({param.name})" if param.name else "")


def _values(old: Param, new: Param, edit: Edit) -> tuple[object, object]:
    if old.value is not None or new.value is not None:
        return old.value, new.value
    at = next(i for i in range(len(old.data)) if old.data[i] != edit.data[i])
    if old.is_descriptor:
        word = slice(at - at % 8, at - at % 8 + 8)
        return old.data[word].hex(), edit.data[word].hex()
    return decode(old.data, edit.data, at)


def decode(old: bytes, new: bytes, at: int) -> tuple[object, object]:
    """The 4-byte word in which byte `at` lies, then and now: one kind of number for both, hex digits if none fits."""
    start = at // 4 * 4
    words = (old[start : start + 4], new[start : start + 4])
    read = guess(words)
    return (read[1][0], read[1][1]) if read else (words[0].hex(), words[1].hex())
