"""What captures of different steps have otherwise: candidates for having been baked in. Plain data.

A candidate is not yet a fault: bytes may differ by chance, and a difference may do no harm. Repair decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from cudagraph_doctor.findings import Location
from cudagraph_doctor.graph.model import GraphNode, NodeKind
from cudagraph_doctor.graph.names import readable
from cudagraph_doctor.replays.model import Dump

Input = tuple[int, int]
"""(step, rows): what the runner was asked for."""


class Kind(StrEnum):
    """How it differs."""

    VALUE = "value"
    """A by-value parameter is constant for each step and differs between steps."""
    OPAQUE = "opaque bytes"
    """The same, and the bytes read as no number."""
    ADDRESS = "address"
    """It points elsewhere into named memory, or into other named memory."""
    LAUNCH = "launch"
    """Grid, block or shared memory."""
    NODES = "nodes"
    """Another kernel, more or fewer nodes."""
    COUNTER = "host counter"
    """It moves on at every capture, also of the same step."""
    DRAW = "host draw"
    """It follows a random generator of the host, or is another number at every capture."""


CODES = {
    Kind.VALUE: "CGD320",
    Kind.OPAQUE: "CGD321",
    Kind.ADDRESS: "CGD305",
    Kind.LAUNCH: "CGD322",
    Kind.NODES: "CGD323",
    Kind.COUNTER: "CGD324",
    Kind.DRAW: "CGD324",
}
"""The rule that speaks of it."""
EACH_CAPTURE = (Kind.COUNTER, Kind.DRAW)
"""Kinds that have a value for each capture; the others have one for each input."""


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes of a parameter that differ."""

    offset: int
    """From the start of the parameter."""
    bytes: int
    dtype: str
    """"" where they read as no number."""
    values: tuple[Any, ...]
    """One for each of `Candidate.seen_at`; hexadecimal text where they read as no number."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One parameter, launch or stretch of nodes."""

    kind: Kind
    key: str
    graph: int
    """The how manieth graph of the step."""
    name: str
    """Kernel or operator, for people."""
    nodes: tuple[int, ...]
    """Positions in the first dump: several where layers launch the same kernel with the same values."""
    seen_at: tuple[Input, ...]
    """The inputs whose values are given; of a counter or a draw, the input of each capture."""
    param: int | None = None
    param_name: str = ""
    parts: tuple[Part, ...] = ()
    follows: str = ""
    """The host value, by path, that it goes along with; "" if none does."""
    location: Location | None = None
    """Where the first of the nodes was launched, where dumps tell that."""

    @property
    def values(self) -> dict[Input, tuple[Any, ...]]:
        """What all parts were for each input, if it is no counter or draw."""
        return dict(zip(self.seen_at, zip(*(part.values for part in self.parts), strict=True), strict=True))

    @property
    def steady(self) -> bool:
        """Whether two different steps of the same rows have the same values: a wider key could tell them apart."""
        values = self.values
        return any(
            one[0] != other[0] and one[1] == other[1] and values[one] == values[other]
            for one in values
            for other in values
        )


def kernel_name(node: GraphNode) -> str:
    """For people."""
    return readable(node.name) if node.kind is NodeKind.KERNEL else node.name


def input_of(dump: Dump) -> Input:
    """What was captured."""
    return (dump.step, dump.rows)


def named(candidate: Candidate) -> str:
    """The candidate by kernel and parameter, as remedies of baked values are named."""
    if candidate.param is None:
        return candidate.name
    told = f" ({candidate.param_name})" if candidate.param_name else ""
    return f"{candidate.name}, parameter {candidate.param}{told}"
