"""Address -> name: which tensor (or which memory) an address belongs to. Plain data, no torch."""

from __future__ import annotations

import bisect
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
    """Looks addresses up. Later ranges win over earlier ones where two start at the same address."""

    def __init__(self, ranges: Iterable[NamedRange] = ()) -> None:
        self._ranges = sorted({(r.address, r.bytes): r for r in ranges}.values(), key=lambda r: (r.address, -r.bytes))
        self._starts = [r.address for r in self._ranges]

    def find(self, address: int) -> Region | None:
        """The innermost named range that holds `address`, or None."""
        at = bisect.bisect_right(self._starts, address) - 1
        while at >= 0 and address - self._ranges[at].address < (1 << 44):
            found = self._ranges[at]
            if found.address <= address < found.address + found.bytes:
                return Region(found.kind, found.name, address - found.address)
            at -= 1
            if self._starts[at] < address - (1 << 40):
                break
        return None
