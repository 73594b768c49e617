"""Device memory as torch's allocator knows it: segments, live blocks, and the doctor's own pool."""

from __future__ import annotations

import bisect
import contextlib
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from cudagraph_doctor.errors import Inconclusive
from cudagraph_doctor.graph.backend import Block
from cudagraph_doctor.graph.lifetime import hold


@dataclass(frozen=True, slots=True)
class AllocatorBlock:
    """A piece of a segment."""

    address: int
    bytes: int
    requested: int
    """What its owner asked for; `bytes` where the allocator does not tell."""
    active: bool
    """Whether a tensor owns it."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Memory that the allocator got from the driver, cut into blocks, by address."""

    device: int
    address: int
    bytes: int
    pool: str
    """"" for the default pool."""
    blocks: tuple[AllocatorBlock, ...]

    def block_at(self, address: int) -> AllocatorBlock:
        """The block that holds `address`, which lies in the segment; a gap counts as a block that is free."""
        at = bisect.bisect_right(self.blocks, address, key=lambda block: block.address) - 1
        if at >= 0 and address < self.blocks[at].address + self.blocks[at].bytes:
            return self.blocks[at]
        return AllocatorBlock(self.address, self.bytes, self.bytes, active=False)


def pool_name(pool: Sequence[int]) -> str:
    """A pool's identity as text: "" for the default pool."""
    return "" if not any(pool) else ".".join(str(part) for part in pool)


def segments_of(snapshot: Iterable[Mapping[str, Any]]) -> list[Segment]:
    """Parse what `torch.cuda.memory_snapshot()` returns."""
    return [
        Segment(
            device=raw["device"],
            address=raw["address"],
            bytes=raw["total_size"],
            pool=pool_name(raw["segment_pool_id"]),
            blocks=tuple(_blocks(raw)),
        )
        for raw in snapshot
    ]


def _blocks(segment: Mapping[str, Any]) -> Iterator[AllocatorBlock]:
    address = segment["address"]
    for raw in segment["blocks"]:
        address = raw.get("address", address)
        size = raw["size"]
        yield AllocatorBlock(address, size, raw.get("requested_size") or size, raw["state"] == "active_allocated")
        address += size


def snapshot() -> list[Segment]:
    """The allocator's segments now, on all devices. Raises Inconclusive if this allocator cannot tell them."""
    backend = torch.cuda.get_allocator_backend()
    if backend != "native":
        raise Inconclusive(
            "torch's allocator does not tell what memory is in use",
            seen=f"allocator backend {backend}",
            fix="run with PYTORCH_CUDA_ALLOC_CONF=backend:native",
        )
    return segments_of(torch.cuda.memory_snapshot())


def live_blocks(segments: Iterable[Segment], device: int, without: str = "") -> list[Block]:
    """Blocks that a tensor owns on `device`, by address; those of the pool `without` are left out."""
    found = [
        Block(block.address, block.requested, segment.pool)
        for segment in segments
        if segment.device == device and (not without or segment.pool != without)
        for block in segment.blocks
        if block.active
    ]
    return sorted(found, key=lambda block: block.address)


def free_blocks(segments: Iterable[Segment], device: int, pool: str) -> list[Block]:
    """Blocks of `pool` on `device` that no tensor owns."""
    return [
        Block(block.address, block.bytes, pool)
        for segment in segments
        if segment.device == device and segment.pool == pool
        for block in segment.blocks
        if not block.active
    ]


def returnable_bytes(segments: Iterable[Segment], device: int) -> int:
    """What the allocator holds on `device` but could give back at once: segments of the default pool all free."""
    return sum(
        segment.bytes
        for segment in segments
        if segment.device == device and not segment.pool and not any(block.active for block in segment.blocks)
    )


class _View:
    """Memory as others' tensors see it: the CUDA array interface, version 3."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
            "stream": None,
        }


def bytes_at(address: int, size: int, device: int) -> torch.Tensor:
    """A uint8 tensor of shape (size,) over memory of `device`: a view, not a copy."""
    return torch.as_tensor(_View(address, size), device=torch.device("cuda", device))


def end_capture_into(pool: Any) -> None:
    """Tell the allocator that a failed capture into `pool` is over: torch up to 2.11 does not.

    As long as it believes in a capture it gives no memory back to the driver.
    """
    end = getattr(torch._C, "_cuda_endAllocateToPool", None)
    if end is not None:
        with contextlib.suppress(RuntimeError):  # newer versions have done it
            end(torch.cuda.current_device(), pool)


@functools.cache
def _own_pool(device: int) -> Any:
    """The doctor's pool on a device. One for the process: it must not be destroyed, see `lifetime`."""
    with torch.cuda.device(device):
        return hold(torch.cuda.MemPool())


class OwnMemory:
    """A private pool for what the doctor allocates, so that it can be told from the target's memory."""

    def __init__(self) -> None:
        self._pool: Any = None
        self._depth = 0

    @property
    def name(self) -> str:
        """Identity of the pool as text, "" while nothing was allocated in it."""
        return "" if self._pool is None else pool_name(self._pool.id)

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """Allocations of this thread go to the pool inside the block; blocks may nest."""
        if self._pool is None:
            self._pool = _own_pool(torch.cuda.current_device())
        if self._depth:  # torch refuses to route to a pool that it routes to already
            yield
            return
        self._depth += 1
        try:
            with torch.cuda.use_mem_pool(self._pool):
                yield
        finally:
            self._depth -= 1
