"""What the addresses in a graph's parameters mean, at the moment the graph is read.

torch's allocator is asked first, then the driver, then the memory of what the allocator once had.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Sequence

from cudagraph_doctor.graph.arguments import words
from cudagraph_doctor.graph.driver import Allocation
from cudagraph_doctor.graph.memory import Segment
from cudagraph_doctor.graph.model import Pointer, Region
from cudagraph_doctor.graph.regions import NamedRange, Regions

LOWEST, HIGHEST = 1 << 33, 1 << 48
"""Words outside are no addresses of CUDA's; the driver is not asked about them."""


class Addresses:
    """Describes addresses for one graph.

    Args:
        regions: the names that the target gave.
        segments: all of torch's segments now.
        pool: identity of the graph's own pool.
        gone: (address, bytes) of segments that torch had at some capture.
        ask: the driver's knowledge of an address.
    """

    def __init__(
        self,
        regions: Regions,
        segments: Sequence[Segment],
        pool: str,
        gone: Iterable[tuple[int, int]],
        ask: Callable[[int], Allocation | None],
    ) -> None:
        self._named = regions
        self._segments = sorted(segments, key=lambda segment: segment.address)
        self._starts = [segment.address for segment in self._segments]
        self._pool = pool
        own = sorted((s for s in segments if s.pool == pool and pool), key=lambda s: (s.bytes, s.address))
        self._ordinals = {segment.address: ordinal for ordinal, segment in enumerate(own)}
        self._gone = Regions(NamedRange("freed", "", address, size) for address, size in gone)
        self._graph_memory: list[NamedRange] = []
        self._ask = ask
        self._asked: dict[int, Allocation | None] = {}
        self._described: dict[int, Region | None] = {}
        """Layers point at the same memory, and carry the same remains: each address is looked up once."""
        self._found: dict[bytes, tuple[Pointer, ...]] = {}
        """Pointers of a parameter that has these bytes: layers share parameters as well."""

    def add_graph_memory(self, address: int, size: int) -> None:
        """Memory that the graph itself allocates (a mem alloc node)."""
        name = f"alloc {len(self._graph_memory)}"
        self._graph_memory.append(NamedRange("pool", name, address, size))
        self._described.clear()
        self._found.clear()

    def describe(self, address: int) -> Region | None:
        """What device or page-locked memory `address` lies in; None if in none that is known."""
        if address not in self._described:
            self._described[address] = self._look_up(address)
        return self._described[address]

    def _look_up(self, address: int) -> Region | None:
        where = self._in_torch(address) or self._in_graph(address) or self._in_driver(address)
        if where is not None:
            return self._named.find(address) or where
        return self._gone.find(address)

    def describe_host(self, address: int) -> Region:
        """What the host side of a copy points to."""
        return self.describe(address) or self._named.find(address) or Region("pageable", "", 0)

    def pointers(self, data: bytes) -> tuple[Pointer, ...]:
        """The words of a parameter that are addresses of known memory."""
        if data not in self._found:
            self._found[data] = self._find(data)
        return self._found[data]

    def _find(self, data: bytes) -> tuple[Pointer, ...]:
        described = self._described  # asked before `describe` is called: there are thousands of words
        found = []
        for index, word in enumerate(words(data)):
            if LOWEST <= word < HIGHEST:
                region = described[word] if word in described else self.describe(word)
                if region is not None:
                    found.append(Pointer(8 * index, word, region))
        return tuple(found)

    def _in_torch(self, address: int) -> Region | None:
        at = bisect.bisect_right(self._starts, address) - 1
        if at < 0 or address >= self._segments[at].address + self._segments[at].bytes:
            return None
        segment = self._segments[at]
        if segment.address in self._ordinals:
            # Free blocks of the graph's own pool are its temporaries, free because the capture is over.
            return Region("pool", str(self._ordinals[segment.address]), address - segment.address)
        block = segment.block_at(address)
        return Region("unnamed" if block.active else "freed", "", address - block.address)

    def _in_graph(self, address: int) -> Region | None:
        for memory in self._graph_memory:
            if memory.address <= address < memory.address + memory.bytes:
                return Region(memory.kind, memory.name, address - memory.address)
        return None

    def _in_driver(self, address: int) -> Region | None:
        if address not in self._asked:
            self._asked[address] = self._ask(address)
        found = self._asked[address]
        if found is None:
            return None
        return Region("pinned" if found.on_host else "unnamed", "", address - found.address)
