"""What changed is found by fingerprints, and is put back byte for byte."""

from __future__ import annotations

import random
import sys
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from cudagraph_doctor.errors import Inconclusive
from cudagraph_doctor.graph.backend import Backend, Block, GraphLog
from cudagraph_doctor.proof.extent import Extent
from cudagraph_doctor.proof.fingerprints import CHUNK
from cudagraph_doctor.proof.state import Memory


class MadeUpMemory:
    """Blocks anywhere in one stretch of bytes that starts at address 0."""

    name = "made up"

    def __init__(self, size: int, *blocks: Block) -> None:
        self.data = torch.zeros(size, dtype=torch.uint8)
        self.live = list(blocks)
        self.log = GraphLog()

    def blocks(self) -> list[Block]:
        """In no order."""
        return list(self.live)

    def bytes_of(self, block: Block) -> torch.Tensor:
        """A view."""
        if block not in self.live:
            raise Inconclusive("freed", fix="look again")
        return self.data[block.address : block.address + block.bytes]

    def own_memory(self) -> AbstractContextManager[None]:
        """Nothing is allocated here."""
        return nullcontext()


def test_memory_shared_with_peers_is_left_alone() -> None:
    made_up = MadeUpMemory(300, Block(0, 100), Block(100, 200))
    backend: Any = made_up
    peer: Any = SimpleNamespace(data_ptr=lambda: 150)
    memory = Memory(backend, untouchable=[peer])
    before = memory.fingerprint()
    made_up.data[:] = 1
    assert memory.changed(before, memory.fingerprint()) == {Extent(0, 100)}
    assert memory.view(Extent(120, 8)) is None, "so it is neither saved nor restored"


def memory_of(size: int, *blocks: Block) -> tuple[MadeUpMemory, Memory]:
    """Made-up memory, watched."""
    made_up = MadeUpMemory(size, *blocks)
    backend: Any = made_up
    return made_up, Memory(backend)


def extents_of(tensor: torch.Tensor) -> range:
    """The tensor's addresses."""
    return range(tensor.data_ptr(), tensor.data_ptr() + tensor.numel() * tensor.element_size())


# which bytes changed


def test_one_changed_byte_is_one_chunk() -> None:
    made_up, memory = memory_of(4 * CHUNK, Block(CHUNK, 2 * CHUNK + 100), Block(0, 50))
    before = memory.fingerprint()
    made_up.data[2 * CHUNK + 5] = 1
    made_up.data[60] = 1  # in no block
    assert memory.changed(before, memory.fingerprint()) == {Extent(2 * CHUNK, CHUNK)}


def test_the_last_chunk_of_a_block_ends_with_it() -> None:
    made_up, memory = memory_of(4 * CHUNK, Block(CHUNK, CHUNK + 100))
    before = memory.fingerprint()
    made_up.data[2 * CHUNK + 99] = 1
    assert memory.changed(before, memory.fingerprint()) == {Extent(2 * CHUNK, 100)}


def test_what_is_known_is_not_looked_at() -> None:
    made_up, memory = memory_of(4 * CHUNK, Block(0, 50), Block(CHUNK, 60))
    before = memory.fingerprint()
    made_up.data[5] = made_up.data[CHUNK + 5] = 1
    known = {Block(0, 50): before[Block(0, 50)], Block(7, 7): before[Block(0, 50)]}  # one of them is gone
    after = memory.fingerprint(known)
    assert after.keys() == before.keys() and memory.changed(before, after) == {Extent(CHUNK, 60)}


def test_what_changed_on_the_way_has_changed() -> None:
    made_up, memory = memory_of(4 * CHUNK, Block(0, 50), Block(CHUNK, 60))
    first = memory.fingerprint()
    made_up.data[5] = made_up.data[CHUNK + 5] = 1
    second = memory.fingerprint()
    made_up.data[5] = made_up.data[CHUNK + 5] = 0
    third = memory.fingerprint()
    del third[Block(CHUNK, 60)]  # gone: it was no lasting memory
    assert memory.changed_between([first, second, third]) == {Extent(0, 50)}
    assert memory.changed_between([first, third]) == memory.changed_between([first]) == set()


def test_nothing_changed() -> None:
    _, memory = memory_of(100, Block(0, 100))
    assert memory.changed(memory.fingerprint(), memory.fingerprint()) == set()
    assert memory.changed(memory.fingerprint(), {}) == set()


def test_a_new_block_has_changed_as_a_whole() -> None:
    made_up, memory = memory_of(4 * CHUNK, Block(0, 64))
    before = memory.fingerprint()
    made_up.live.append(Block(CHUNK, CHUNK + 8))
    memory.refresh()
    assert memory.changed(before, memory.fingerprint()) == {Extent(CHUNK, CHUNK), Extent(2 * CHUNK, 8)}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("rows", [(0, 1), (3, 7), (5, 9)])
def test_two_flipped_signs_do_not_cancel(dtype: torch.dtype, rows: tuple[int, int]) -> None:
    made_up, memory = memory_of(CHUNK, Block(0, CHUNK))
    values = made_up.data.view(dtype)
    values[:64] = 1
    before = memory.fingerprint()
    values[list(rows)] *= -1
    assert memory.changed(before, memory.fingerprint())


def test_the_order_of_values_counts() -> None:
    made_up, memory = memory_of(CHUNK, Block(0, CHUNK))
    made_up.data[:16] = torch.arange(16, dtype=torch.uint8)
    before = memory.fingerprint()
    made_up.data[:16] = made_up.data[:16].flip(0)
    assert memory.changed(before, memory.fingerprint())


def test_an_address_that_no_word_starts_at() -> None:
    made_up, memory = memory_of(2 * CHUNK, Block(3, CHUNK + 5))
    before = memory.fingerprint()
    made_up.data[3] = 1
    assert memory.changed(before, memory.fingerprint()) == {Extent(3, CHUNK)}


def test_graph_pools_are_not_watched() -> None:
    made_up, _ = memory_of(200, Block(0, 100), Block(100, 100, pool="0.1"))
    made_up.log.graphs.append(SimpleNamespace(pool="0.1"))  # type: ignore[arg-type]
    backend: Any = made_up
    memory = Memory(backend)
    assert memory.blocks == {Block(0, 100)} and memory.live_bytes == 100


# saving and restoring


def test_merged_extents_never_cross_an_allocation() -> None:
    _, memory = memory_of(400, Block(0, 100), Block(100, 200))
    chunks = [Extent(0, 50), Extent(50, 50), Extent(100, 100), Extent(200, 100), Extent(320, 10)]
    assert memory.merged(chunks) == {Extent(0, 100), Extent(100, 200), Extent(320, 10)}


def test_extents_with_a_gap_stay_apart() -> None:
    _, memory = memory_of(400, Block(0, 400))
    assert memory.merged([Extent(0, 50), Extent(60, 50)]) == {Extent(0, 50), Extent(60, 50)}


def test_a_freed_block_is_left_out() -> None:
    made_up, memory = memory_of(200, Block(0, 100), Block(100, 100))
    del made_up.live[1]
    assert memory.view(Extent(100, 10)) is None  # not looked again yet
    assert list(memory.fingerprint()) == [Block(0, 100)]
    memory.refresh()
    assert memory.view(Extent(100, 10)) is None and memory.view(Extent(0, 101)) is None


def test_what_is_saved_is_put_back(backend: Backend) -> None:
    kept, other = torch.arange(100_000, device=backend.device), torch.zeros(10, device=backend.device)
    memory = Memory(backend)
    before = memory.fingerprint()
    kept[99_999] = 5
    other.fill_(2)
    changed = memory.changed(before, memory.fingerprint())
    assert all(any(e.address in extents_of(t) for t in (kept, other)) for e in changed) and len(changed) == 2
    snapshot = memory.save(changed)
    kept.fill_(0)
    other.fill_(0)
    memory.restore(snapshot)
    assert kept[99_999] == 5 and other.eq(2).all()
    assert kept[0] == 0, "only what changed is state"


def test_the_doctor_does_not_watch_its_own_memory(backend: Backend) -> None:
    tensor = torch.zeros(10, device=backend.device)
    memory = Memory(backend)
    before = memory.fingerprint()
    snapshot = memory.save([Extent(tensor.data_ptr(), 40)])
    memory.refresh()
    assert memory.changed(before, memory.fingerprint()) == set()
    assert list(snapshot.memory) == [Extent(tensor.data_ptr(), 40)]


def test_a_block_that_is_gone_is_neither_saved_nor_restored(backend: Backend) -> None:
    tensor = torch.zeros(1000, device=backend.device)
    extent = Extent(tensor.data_ptr(), 4000)
    memory = Memory(backend)
    snapshot = memory.save([extent])
    del tensor
    memory.refresh()
    memory.restore(snapshot)
    assert memory.save([extent]).memory == {}


# random generators


def test_random_states_are_put_back(backend: Backend) -> None:
    own = torch.Generator(device=backend.device)
    memory = Memory(backend, [own])

    def draw() -> list[float]:
        drawn = [random.random(), float(torch.rand(())), float(torch.rand((), device=backend.device))]
        drawn.append(float(torch.rand((), device=backend.device, generator=own)))
        return [*drawn, sys.modules["numpy"].random.random()]

    __import__("numpy")
    snapshot = memory.save([])
    first = draw()
    memory.restore(snapshot)
    assert draw() == first
    memory.restore(snapshot, random=False)
    assert all(a != b for a, b in zip(draw(), first, strict=True))
