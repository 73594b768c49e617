"""Address -> name: which tensor (or which memory) an address belongs to. Plain data, no torch."""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Iterable
from dataclasses import dataclass

from cudagraph_doctor.graph.model import Region


@dataclass(frozen=True, slots=True)
class NamedRange:
    """A stretch of memory with a name. `kind` as in `Region.kind`."""

    kind: str
    name: str
    address: int
    bytes: int


class Regions:
    """Looks addresses up in O(log n). Ranges may nest and overlap: the smallest that holds the address wins, of two
    equally large ones the later given. Empty ranges hold nothing.
    """

    def __init__(self, ranges: Iterable[NamedRange] = ()) -> None:
        self._starts, self._owners = _flatten([r for r in ranges if r.bytes > 0])

    def find(self, address: int) -> Region | None:
        """The innermost named range that holds `address`, or None. The end of a range is not in it."""
        at = bisect.bisect_right(self._starts, address) - 1
        owner = self._owners[at] if at >= 0 else None
        return None if owner is None else Region(owner.kind, owner.name, address - owner.address)


def _flatten(ranges: list[NamedRange]) -> tuple[list[int], list[NamedRange | None]]:
    """Cut the address space where any range starts or ends: (starts of the pieces, the range that owns each piece)."""
    cuts = sorted({r.address for r in ranges} | {r.address + r.bytes for r in ranges})
    opening = sorted(enumerate(ranges), key=lambda entry: entry[1].address)
    owners: list[NamedRange | None] = []
    holding: list[tuple[int, int, NamedRange]] = []  # a heap: smallest first, of equals the later given
    opened = 0
    for cut in cuts:
        while opened < len(opening) and opening[opened][1].address == cut:
            order, found = opening[opened]
            heapq.heappush(holding, (found.bytes, -order, found))
            opened += 1
        while holding and holding[0][2].address + holding[0][2].bytes <= cut:
            heapq.heappop(holding)
        owners.append(holding[0][2] if holding else None)
    return cuts, owners
