"""Reads the graphs of a step, with the names that were known when they were captured for the addresses in them."""

from __future__ import annotations

from collections.abc import Sequence

from cudagraph_doctor.errors import DoctorError
from cudagraph_doctor.graph.model import CapturedGraph
from cudagraph_doctor.graph.regions import NamedRange, Regions
from cudagraph_doctor.proof.arms import Arms, span
from cudagraph_doctor.proof.subject import Held
from cudagraph_doctor.proof.weights import weight_names


def read(arms: Arms, held: Sequence[Held], weights: set[str] | None = None) -> list[CapturedGraph | None]:
    """The graphs, in order; None for one that cannot be read.

    Args:
        arms: for the backend, and for names.
        held: which.
        weights: what `weight_names` tells; who reads many graphs asks it once.
    """
    known = weight_names(arms) if weights is None else weights

    def one(held: Held) -> CapturedGraph | None:
        try:
            return arms.backend.read(held.live, regions_of(held, known))
        except DoctorError:
            return None

    return [one(graph) for graph in held]


def regions_of(held: Held, weights: set[str]) -> Regions:
    """Names of the memory that was around at the capture."""
    ranges = []
    for name, tensor in held.tensors.items():
        start, size = span(tensor)
        kind = "input" if name in held.inputs else "weight" if name in weights else "root"
        if size:
            ranges.append(NamedRange(kind, name, start, size))
    return Regions(ranges)
