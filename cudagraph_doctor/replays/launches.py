"""Lists of nodes of several captures, brought together: which node is which, which launches differ. Plain Python."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cudagraph_doctor.graph.model import GraphNode
from cudagraph_doctor.replays.candidates import Candidate, Input, Kind, Part, input_of, kernel_name
from cudagraph_doctor.replays.model import Dump

Launch = tuple[str, str, tuple[int, int, int] | None, tuple[int, int, int] | None, int | None]


@dataclass(frozen=True, slots=True)
class Aligned:
    """A capture whose nodes are known by those of the first one."""

    dump: Dump
    nodes: Mapping[int, GraphNode]
    """Position in the first dump -> its counterpart here."""
    apart: tuple[tuple[int, int, tuple[str, ...]], ...] = ()
    """Where they part: (first position, one past the last, names that are here instead)."""


def align(dumps: Sequence[Dump]) -> list[Aligned]:
    """All dumps by the nodes of the first one. Nodes go together by kind and name, in order."""
    first = [_what(node) for node in dumps[0].nodes]
    return [_aligned(first, dump) for dump in dumps]


def _what(node: GraphNode) -> tuple[str, str, bool]:
    return (node.kind, node.name, node.parent is None)


def _aligned(first: Sequence[tuple[str, str, bool]], dump: Dump) -> Aligned:
    here = [_what(node) for node in dump.nodes]
    if here == first:  # the usual case; matching is quadratic where names repeat
        return Aligned(dump, dict(enumerate(dump.nodes)))
    nodes: dict[int, GraphNode] = {}
    apart = []
    for tag, a, b, c, d in difflib.SequenceMatcher(None, first, here, autojunk=False).get_opcodes():
        if tag == "equal":
            nodes |= {a + step: dump.nodes[c + step] for step in range(b - a)}
        else:
            apart.append((a, b, tuple(kernel_name(node) for node in dump.nodes[c:d])))
    return Aligned(dump, nodes, tuple(apart))


def launch_of(node: GraphNode) -> Launch:
    """All of a node but its parameters."""
    return (node.kind, node.name, node.grid, node.block, node.shared_bytes)


def unsteady(dumps: Sequence[Dump]) -> set[Input]:
    """Inputs whose captures do not all launch the same, with nothing changed between them."""
    seen: dict[Input, list[Launch]] = {}
    return {
        input_of(dump)
        for dump in dumps
        if seen.setdefault(input_of(dump), [launch_of(node) for node in dump.nodes])
        != [launch_of(node) for node in dump.nodes]
    }


def differing_launches(aligned: Sequence[Aligned]) -> list[Candidate]:
    """Launches that differ between inputs; one capture of each input is enough, see `unsteady`."""
    by_input: dict[Input, Aligned] = {}
    for one in aligned:
        by_input.setdefault(input_of(one.dump), one)
    inputs = tuple(by_input)
    return [*_other_sizes(by_input, inputs), *_other_nodes(aligned[0], by_input, inputs)]


def _other_sizes(by_input: Mapping[Input, Aligned], inputs: tuple[Input, ...]) -> list[Candidate]:
    found = []
    for index in sorted({index for one in by_input.values() for index in one.nodes}):
        there = tuple(at for at in inputs if index in by_input[at].nodes)
        nodes = [by_input[at].nodes[index] for at in there]
        parts = []
        for field in ("grid", "block", "shared_bytes"):
            values = tuple(getattr(node, field) for node in nodes)
            if len(set(values)) > 1:
                parts.append(Part(0, 0, field, values))
        if parts:
            found.append(_candidate(Kind.LAUNCH, by_input[there[0]], nodes[0], (index,), there, parts))
    return found


def _other_nodes(first: Aligned, by_input: Mapping[Input, Aligned], inputs: tuple[Input, ...]) -> list[Candidate]:
    """One candidate for each stretch of the first list that has others, or none, in its place somewhere."""
    found = []
    names = [kernel_name(node) for node in first.dump.nodes]
    for start, stop in sorted({(a, b) for one in by_input.values() for a, b, _ in one.apart}):
        values = tuple(
            next((here for a, b, here in by_input[at].apart if (a, b) == (start, stop)), tuple(names[start:stop]))
            for at in inputs
        )
        told = next(some for some in values if some)
        part = Part(0, 0, "nodes", values)
        node = first.dump.nodes[min(start, len(names) - 1)]
        found.append(replace(_candidate(Kind.NODES, first, node, (start,), inputs, [part]), name=", ".join(told)))
    return found


def _candidate(
    kind: Kind, one: Aligned, node: GraphNode, nodes: tuple[int, ...], inputs: tuple[Input, ...], parts: Sequence[Part]
) -> Candidate:
    return Candidate(
        kind,
        one.dump.key,
        one.dump.graph,
        kernel_name(node),
        nodes,
        inputs,
        parts=tuple(parts),
        location=node.origin.location if node.origin else None,
    )
