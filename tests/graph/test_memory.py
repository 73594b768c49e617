"""The allocator's snapshot, parsed: made-up snapshots in torch's form."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cudagraph_doctor.errors import Inconclusive
from cudagraph_doctor.graph.backend import Block
from cudagraph_doctor.graph.memory import (
    end_capture_into,
    live_blocks,
    pool_name,
    returnable_bytes,
    segments_of,
    snapshot,
)


def block(state: str, size: int, requested: int = 0, **more: int) -> dict[str, Any]:
    return {"state": state, "size": size, "requested_size": requested, **more}


def segment(address: int, *blocks: dict[str, Any], pool: tuple[int, int] = (0, 0), device: int = 0) -> dict[str, Any]:
    size = sum(part["size"] for part in blocks)
    return {"device": device, "address": address, "total_size": size, "segment_pool_id": pool, "blocks": list(blocks)}


def test_pools_by_name() -> None:
    assert (pool_name((0, 0)), pool_name((0, 3)), pool_name((2, 0))) == ("", "0.3", "2.0")


def test_live_blocks_have_their_requested_size_and_pool() -> None:
    segments = segments_of(
        [
            segment(9000, block("active_allocated", 512, 500), pool=(0, 1)),
            segment(1000, block("active_allocated", 512, 12), block("inactive", 512), block("active_allocated", 1024)),
        ]
    )
    assert live_blocks(segments, 0) == [Block(1000, 12), Block(2024, 1024), Block(9000, 500, "0.1")]


def test_blocks_that_wait_for_a_stream_are_not_alive() -> None:
    assert live_blocks(segments_of([segment(0, block("active_pending_free", 512, 512))]), 0) == []


def test_other_devices_and_the_doctors_pool_are_left_out() -> None:
    segments = segments_of(
        [
            segment(1000, block("active_allocated", 512), device=1),
            segment(2000, block("active_allocated", 512), pool=(7, 0)),
            segment(3000, block("active_allocated", 512)),
        ]
    )
    assert live_blocks(segments, 0, without="7.0") == [Block(3000, 512)]
    assert [found.address for found in live_blocks(segments, 0)] == [2000, 3000]


def test_addresses_of_blocks_are_taken_where_they_are_told() -> None:
    (found,) = segments_of([segment(1000, block("inactive", 512, address=1000), block("inactive", 256, address=4000))])
    assert [part.address for part in found.blocks] == [1000, 4000]


def test_the_block_at_an_address() -> None:
    (found,) = segments_of([segment(1000, block("active_allocated", 100), block("inactive", 100, address=1200))])
    assert found.block_at(1099).active and found.block_at(1000).address == 1000
    assert not found.block_at(1200).active and found.block_at(1200).address == 1200
    gap = found.block_at(1150)
    assert not gap.active and gap.address == 1000


def test_only_free_segments_of_the_default_pool_can_be_given_back() -> None:
    segments = segments_of(
        [
            segment(1000, block("inactive", 512), block("inactive", 512)),
            segment(3000, block("inactive", 512), block("active_allocated", 512)),
            segment(5000, block("inactive", 512), pool=(0, 1)),
            segment(7000, block("inactive", 512), device=1),
        ]
    )
    assert returnable_bytes(segments, 0) == 1024


def test_an_allocator_that_tells_nothing_is_inconclusive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_allocator_backend", lambda: "cudaMallocAsync")
    with pytest.raises(Inconclusive, match="cudaMallocAsync"):
        snapshot()


def test_the_allocator_is_told_of_a_failed_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, tuple[int, int]]] = []
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", lambda *what: told.append(what), raising=False)
    end_capture_into((0, 3))
    assert told == [(1, (0, 3))]


def test_an_allocator_that_knows_already_or_cannot_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def knows(device: int, pool: tuple[int, int]) -> None:
        asked.append(pool)
        raise RuntimeError("endAllocatePool: not currently recording to mempool_id")

    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", knows, raising=False)
    end_capture_into((0, 3))
    monkeypatch.delattr(torch._C, "_cuda_endAllocateToPool")
    end_capture_into((0, 4))
    assert asked == [(0, 3)]
