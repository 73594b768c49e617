"""Live blocks, the doctor's own memory, room and delay on a real GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")]


def test_blocks_are_what_lives(gpu: Any) -> None:
    before = {block.address for block in gpu.backend.blocks()}
    x = torch.empty(1000, device="cuda", dtype=torch.uint8)
    (block,) = (block for block in gpu.backend.blocks() if block.address not in before)
    assert (block.address, block.bytes, block.pool) == (x.data_ptr(), 1000, "")
    del x
    assert block not in gpu.backend.blocks()


def test_bytes_of_a_block_are_a_view(gpu: Any) -> None:
    x = torch.arange(100, device="cuda", dtype=torch.int32)
    (block,) = (block for block in gpu.backend.blocks() if block.address == x.data_ptr())
    view = gpu.backend.bytes_of(block)
    assert view.dtype is torch.uint8 and view.shape == (400,) and view.data_ptr() == x.data_ptr()
    view.zero_()
    assert x.eq(0).all()
    del view
    assert x.eq(0).all() and block in gpu.backend.blocks()


def test_own_memory_is_left_out(gpu: Any) -> None:
    before = gpu.backend.blocks()
    with gpu.backend.own_memory():
        mine = torch.empty(5000, device="cuda")
        with gpu.backend.own_memory():
            more = torch.empty(1 << 22, device="cuda")
        rest = torch.empty(100, device="cuda")
    assert gpu.backend.blocks() == before
    theirs = torch.empty(5000, device="cuda")
    assert {block.address for block in gpu.backend.blocks()} - {block.address for block in before} == {
        theirs.data_ptr()
    }
    del mine, more, rest
    with gpu.backend.own_memory():
        again = torch.empty(5000, device="cuda")
    assert again.data_ptr() not in {block.address for block in gpu.backend.blocks()}


def test_memory_of_a_graph_names_its_pool(gpu: Any) -> None:
    x = torch.ones(1 << 20, device="cuda")
    kept = []
    _, live = gpu.capture(lambda: kept.append(x * 2))
    (block,) = (block for block in gpu.backend.blocks() if block.address == kept[-1].data_ptr())
    assert block.pool == live.pool != ""


def test_room(gpu: Any) -> None:
    def changes() -> tuple[int, int]:
        """By an allocation, and by giving it back."""
        before = gpu.backend.free_bytes()
        x = torch.empty(1 << 28, device="cuda", dtype=torch.uint8)
        during = gpu.backend.free_bytes()
        del x
        return before - during, gpu.backend.free_bytes() - during

    # other processes may take memory of the same GPU and give it back, but hardly each time
    assert max(min(changes()) for _ in range(20)) >= 1 << 28


def test_delay_keeps_the_stream_busy(gpu: Any) -> None:
    gpu.backend.delay(1)
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    gpu.backend.delay(20)
    stop.record()
    assert not stop.query()
    gpu.backend.synchronize()
    took = start.elapsed_time(stop)
    print(f"{took:.1f} ms for 20")
    assert 10 < took < 40


def test_where_tensors_lie(gpu: Any) -> None:
    assert gpu.backend.is_host(torch.ones(1)) and not gpu.backend.is_host(torch.ones(1, device="cuda"))
