"""What a step changes, found by watching memory, not by what anybody thinks it changes.

All live allocations are fingerprinted in chunks before and after; chunks whose fingerprint moved are the state. Only
these are saved and restored afterwards. Host random generators belong to the state too.
"""

from __future__ import annotations

import bisect
import random
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

import torch

from cudagraph_doctor.errors import Inconclusive
from cudagraph_doctor.graph.backend import Backend, Block
from cudagraph_doctor.proof import fingerprints
from cudagraph_doctor.proof.extent import Extent
from cudagraph_doctor.proof.fingerprints import CHUNK
from cudagraph_doctor.proof.packed import Packed


@dataclass(slots=True)
class Snapshot:
    """Saved bytes of some extents, and the random state of host and device."""

    memory: Packed
    """Copies, in the doctor's own memory."""
    random: dict[str, Any] = field(default_factory=dict)


class Memory:
    """Fingerprints, saves and restores device memory of a backend.

    Args:
        backend: where the memory lives.
        generators: further generators whose state belongs to the step.
        untouchable: tensors whose allocations are left alone.
    """

    def __init__(
        self,
        backend: Backend,
        generators: Iterable[torch.Generator] = (),
        untouchable: Iterable[torch.Tensor] = (),
    ) -> None:
        self._backend = backend
        self._generators = tuple(generators)
        self._untouchable = [tensor.data_ptr() for tensor in untouchable]
        self._blocks: list[Block] = []
        self._starts: list[int] = []
        self._weights: torch.Tensor | None = None
        self.refresh()

    def refresh(self) -> None:
        """Look again which allocations are alive. Graph pools are left out: replays rewrite them by right."""
        pools = {live.pool for live in self._backend.log.graphs if live.pool}
        self._blocks = sorted((b for b in self._backend.blocks() if b.pool not in pools), key=lambda b: b.address)
        for address in self._untouchable:
            self._blocks = [b for b in self._blocks if not b.address <= address < b.address + b.bytes]
        self._starts = [block.address for block in self._blocks]

    @property
    def blocks(self) -> set[Block]:
        """The allocations that were alive at the last `refresh`."""
        return set(self._blocks)

    def own_memory(self) -> AbstractContextManager[None]:
        """What is allocated inside the block is not watched."""
        return self._backend.own_memory()

    @property
    def live_bytes(self) -> int:
        """Bytes of all allocations watched."""
        return sum(block.bytes for block in self._blocks)

    def fingerprint(self, known: Mapping[Block, torch.Tensor] | None = None) -> dict[Block, torch.Tensor]:
        """One int64 a chunk for each live block; depends on the order of the bytes as well as on their values.

        Args:
            known: fingerprints that are taken over instead of looking.
        """
        known = known or {}
        found = {block: known[block] for block in self._blocks if block in known}
        unseen = [block for block in self._blocks if block.bytes and block not in known]
        with self._backend.own_memory(), torch.no_grad():
            return found | self._marks(unseen)

    def _marks(self, blocks: Sequence[Block]) -> dict[Block, torch.Tensor]:
        kernel = fingerprints.fused() if self._backend.name == "cuda" else None
        if kernel is not None:
            stretches = [(block.address, block.bytes) for block in blocks]
            return dict(zip(blocks, fingerprints.by_kernel(kernel, stretches, self._backend.device), strict=True))
        seen = ((block, self._bytes(block)) for block in blocks)
        return {block: self._by_operators(data) for block, data in seen if data is not None}

    def _by_operators(self, data: torch.Tensor) -> torch.Tensor:
        if self._weights is None:
            self._weights = fingerprints.weights().to(data.device)
        return fingerprints.by_operators(data, self._weights)

    def _bytes(self, block: Block) -> torch.Tensor | None:
        try:
            return self._backend.bytes_of(block)
        except Inconclusive:  # freed since the last refresh
            return None

    def changed(self, before: Mapping[Block, torch.Tensor], after: Mapping[Block, torch.Tensor]) -> set[Extent]:
        """Chunks whose fingerprint moved, and all chunks of blocks that were not there before."""
        if not after:
            return set()
        blocks = list(after)
        ends = list(accumulate(map(len, after.values())))
        with self._backend.own_memory():
            # in one comparison: each one waits for the device
            was = torch.cat([~now if (old := before.get(block)) is None else old for block, now in after.items()])
            moved = (torch.cat(list(after.values())) != was).nonzero().flatten().tolist()
        extents: set[Extent] = set()
        for number in moved:
            at = bisect.bisect_right(ends, number)
            start = (number - ends[at] + len(after[blocks[at]])) * CHUNK
            extents.add(Extent(blocks[at].address + start, min(CHUNK, blocks[at].bytes - start)))
        return extents

    def changed_between(self, looks: Sequence[Mapping[Block, torch.Tensor]]) -> set[Extent]:
        """Chunks that moved from one look to the next, in memory that was there at all of them.

        What goes round may be at the end where it was at the beginning.
        """
        lasting = set.intersection(*map(set, looks))
        return {
            extent
            for before, after in pairwise(looks)
            for extent in self.changed(before, {block: after[block] for block in lasting})
        }

    def merged(self, extents: Iterable[Extent]) -> set[Extent]:
        """Neighbouring extents of one allocation as one: fewer, larger copies."""
        starts = set(self._starts)
        runs: list[Extent] = []
        for extent in sorted(extents):
            last = runs[-1] if runs else None
            if last and last.address + last.bytes == extent.address and extent.address not in starts:
                runs[-1] = Extent(last.address, last.bytes + extent.bytes)
            else:
                runs.append(extent)
        return set(runs)

    def view(self, extent: Extent) -> torch.Tensor | None:
        """The extent's bytes as they are now (a uint8 view), or None if its allocation is gone."""
        return self.views([extent]).get(extent)

    def views(self, extents: Iterable[Extent]) -> dict[Extent, torch.Tensor]:
        """The same of several, ascending, without those that are gone."""
        found: dict[Extent, torch.Tensor] = {}
        seen: dict[Block, torch.Tensor | None] = {}
        for extent in sorted(extents):
            at = bisect.bisect_right(self._starts, extent.address) - 1
            if at < 0 or extent.address + extent.bytes > self._blocks[at].address + self._blocks[at].bytes:
                continue
            block = self._blocks[at]
            if block not in seen:
                seen[block] = self._bytes(block)
            data, start = seen[block], extent.address - block.address
            if data is not None:
                found[extent] = data[start : start + extent.bytes]
        return found

    def save(self, extents: Iterable[Extent]) -> Snapshot:
        """Copy the extents (those still alive) and all random states."""
        with self._backend.own_memory(), torch.no_grad():
            copies = Packed(self.views(extents))
        return Snapshot(copies, self.random_state())

    def put_back(self, memory: Mapping[Extent, torch.Tensor]) -> None:
        """Write saved bytes to where they were, of extents still alive."""
        with self._backend.own_memory(), torch.no_grad():
            for extent, data in self.views(memory).items():
                data.copy_(memory[extent])
        # an engine may stage on a stream of its own, which does not wait for ours
        self._backend.synchronize()

    def restore(self, snapshot: Snapshot, random: bool = True) -> None:
        """Put the bytes back, and the random states unless `random` is False."""
        self.put_back(snapshot.memory)
        if random:
            self.set_random_state(snapshot.random)

    def random_state(self) -> dict[str, Any]:
        """States of Python's, numpy's and torch's generators and of the target's own."""
        state: dict[str, Any] = {"python": random.getstate(), "torch": torch.get_rng_state()}
        if "numpy" in sys.modules:
            state["numpy"] = sys.modules["numpy"].random.get_state()
        state["cuda"] = torch.cuda.get_rng_state()
        state["own"] = [generator.get_state() for generator in self._generators]
        return state

    def set_random_state(self, state: Mapping[str, Any]) -> None:
        """Inverse of `random_state`."""
        random.setstate(state["python"])
        torch.set_rng_state(state["torch"])
        if "numpy" in state:
            sys.modules["numpy"].random.set_state(state["numpy"])
        torch.cuda.set_rng_state(state["cuda"])
        for generator, saved in zip(self._generators, state["own"], strict=True):
            generator.set_state(saved)
