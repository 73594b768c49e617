"""What follows from something that is told already is not told again."""

from __future__ import annotations

from collections.abc import Sequence

from cudagraph_doctor.findings import Location
from cudagraph_doctor.graph.illegal import Kind
from cudagraph_doctor.observation.model import EmptyGraph, Operation, Refusal


def once_a_line(refusals: Sequence[Refusal]) -> list[Refusal]:
    """Of the operators that one line issues to a stream outside of the capture, the first that is refused."""
    kept: list[Refusal] = []
    places: set[Location] = set()
    for refusal in refusals:
        place = _place_outside(refusal)
        if place is None or place not in places:
            kept.append(refusal)
        if place is not None:
            places.add(place)
    return kept


def lost_besides(
    refusals: Sequence[Refusal], outside: Sequence[Operation], empty: Sequence[EmptyGraph]
) -> tuple[tuple[Operation, ...], tuple[EmptyGraph, ...]]:
    """Work that the graphs lack and graphs that are empty, at lines that no refusal names and each at one of the two.

    Args:
        refusals: of the captures.
        outside: work on streams that are not captured.
        empty: graphs without a node.
    """
    told = {_place_outside(refusal) for refusal in refusals} - {None}
    left = tuple(graph for graph in empty if graph.location not in told)
    told |= {graph.location for graph in left}
    return tuple(operation for operation in outside if operation.location not in told), left


def _place_outside(refusal: Refusal) -> Location | None:
    """Where a refused operation went to a stream that is not captured; None if it did not."""
    operation = refusal.operation
    return operation.location if operation is not None and operation.kind is Kind.OUTSIDE_CAPTURE else None
