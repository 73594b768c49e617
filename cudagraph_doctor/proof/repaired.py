"""What exactly was put right, and which parameters of which nodes read it: so that other checks know the fault again.

Two checks that mend the same parameter, or memory that the same parameter points at, have found the same fault, however
each of them calls it. Addresses tell nothing of that: each check captures anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

from cudagraph_doctor.graph.model import CapturedGraph, GraphNode, NodeKind, Origin, Param
from cudagraph_doctor.graph.names import readable
from cudagraph_doctor.proof.arms import span
from cudagraph_doctor.proof.compare import bits
from cudagraph_doctor.proof.repair import Cause, Remedy
from cudagraph_doctor.proof.scene import Scene
from cudagraph_doctor.proof.subject import Planned

PLACES, READ_BY = "places", "read_by"
"""Evidence that `causes` joins findings by, and tells."""
_READERS = 16
"""Places kept of one remedy."""
_HASHED = 4096
"""Elements of which the content is told: more are no per-step input."""
_TOLD = 16
"""Readers that are told in words."""


def mark(
    remedies: Sequence[Remedy], scene: Scene, graphs: Sequence[CapturedGraph | None], at: Planned, who: Origin | None
) -> None:
    """Note on each remedy where it mends (`PLACES`, plain JSON) and who reads that (`READ_BY`, in words).

    Args:
        remedies: what healed.
        scene: the tensors around the replay that it healed.
        graphs: what that replay launched; None for one that cannot be read.
        at: the step.
        who: who launched the node whose parameter was set, if that is known.
    """
    for remedy in remedies:
        found = list(_set(remedy, graphs, at) if remedy.edits else _pointing(remedy, scene, graphs, at))
        places: list[dict[str, Any]] = [place for place, _ in found[:_READERS]]
        if remedy.held is not None and remedy.right is not None and remedy.right.numel() <= _HASHED:
            places.append({"graph": str(at.key), "step": at.step, "bytes": _content(remedy)})
        if remedy.cause is Cause.LEFT_OUT:
            both = repr((remedy.name, remedy.was, remedy.expected)).encode()
            places.append({"graph": str(at.key), "step": at.step, "bytes": hashlib.sha256(both).hexdigest()[:16]})
        remedy.notes[PLACES] = places
        remedy.notes[READ_BY] = list(dict.fromkeys(_words(told, who if remedy.edits else None) for _, told in found))[
            :_TOLD
        ]


def of_group(remedies: Sequence[Remedy]) -> dict[str, Any]:
    """What was noted on remedies that are one fault, as evidence."""
    told: dict[str, list[Any]] = {PLACES: [], READ_BY: []}
    for remedy in remedies:
        for key, some in told.items():
            noted = remedy.notes.get(key, [])
            assert isinstance(noted, list)
            some += [one for one in noted if one not in some]
    return {key: some for key, some in told.items() if some}


def of_node(key: object, node: int) -> dict[str, Any]:
    """A launch that is not what it should be, as evidence."""
    return {PLACES: [{"graph": str(key), "node": node}]}


_Reader = tuple[GraphNode, Param]


def _set(
    remedy: Remedy, graphs: Sequence[CapturedGraph | None], at: Planned
) -> Iterator[tuple[dict[str, Any], _Reader | None]]:
    for _, edit in remedy.edits:
        place = {"graph": str(at.key), "node": edit.node, "parameter": edit.param}
        nodes = [node for graph in graphs if graph for node in graph.nodes if node.index == edit.node]
        reader = next(((n, p) for n in nodes for p in n.params if p.index == edit.param), None)
        yield place, reader


def _pointing(
    remedy: Remedy, scene: Scene, graphs: Sequence[CapturedGraph | None], at: Planned
) -> Iterator[tuple[dict[str, Any], _Reader]]:
    """The parameters that point into the tensor of which a part was written."""
    tensor = scene.paths.get(remedy.name, remedy.buffer)
    if tensor is None:
        return
    start, size = span(tensor)
    if remedy.buffer is not None and not start <= remedy.buffer.data_ptr() < start + size:
        start, size = span(remedy.buffer)  # the name leads elsewhere by now
    for graph in graphs:
        for node in graph.nodes if graph else ():
            for param in node.params:
                if any(start <= pointer.address < start + size for pointer in param.pointers):
                    yield {"graph": str(at.key), "node": node.index, "parameter": param.index}, (node, param)


def _content(remedy: Remedy) -> str:
    """What was there and what was written, as a short hash."""
    both = hashlib.sha256()
    for tensor in (remedy.held, remedy.right):
        assert tensor is not None
        both.update(repr(bits(tensor).flatten().tolist()).encode())
    return both.hexdigest()[:16]


def _words(reader: _Reader | None, who: Origin | None) -> str:
    if reader is None:
        return "a parameter that could not be read"
    node, param = reader
    kernel = readable(node.name) if node.kind is NodeKind.KERNEL else node.name
    name = f" ({param.name})" if param.name else ""
    origin = who or node.origin
    module = f" in {origin.module}" if origin and origin.module else ""
    line = origin.location if origin else None
    at = f", launched at {line.file}:{line.line}" if line else ""
    return f"{kernel}, parameter {param.index}{name}{at}{module}"
