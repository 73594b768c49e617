"""Marks on storages: who is on the device, who is alive, who is only held by a graph."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable
from typing import Any

import torch

from cudagraph_doctor.graph.emulated import EmulatedBackend
from cudagraph_doctor.graph.emulation.memory import Heap, bytes_view, memory_of, place_of, storage_of
from cudagraph_doctor.graph.illegal import Place

Capture = Callable[[Callable[[], object]], Any]


def addresses(backend: EmulatedBackend) -> set[int]:
    return {block.address for block in backend.blocks()}


def test_a_mark_is_the_storages_and_stays() -> None:
    heap, x = Heap(), torch.zeros(4)
    assert place_of(x) is None
    mark = heap.mark(x, Place.DEVICE)
    assert heap.mark(x[1:], Place.HOST) is mark and memory_of(x.view(2, 2)) is mark
    gc.collect()
    assert place_of(x.detach()) is Place.DEVICE


def test_a_mark_can_be_moved() -> None:
    heap, x = Heap(), torch.zeros(4)
    heap.mark(x, Place.HOST)
    assert not heap.blocks()
    heap.move(x, Place.DEVICE)
    assert [block.address for block in heap.blocks()] == [x.data_ptr()]
    heap.move(x, Place.PINNED)
    assert not heap.blocks() and place_of(x) is Place.PINNED


def test_a_tensor_without_storage_has_no_place() -> None:
    heap, sparse = Heap(), torch.zeros(2, 2).to_sparse()
    assert heap.mark(sparse, Place.DEVICE) is None
    assert storage_of(sparse) is None and place_of(sparse) is None


def test_dead_storages_are_not_listed_and_views_keep_theirs_alive() -> None:
    heap = Heap()
    x = torch.zeros(4)
    heap.mark(x, Place.DEVICE)
    view, address = x[2:], x.data_ptr()
    del x
    gc.collect()
    assert [(block.address, block.bytes) for block in heap.blocks()] == [(address, 16)]
    del view
    gc.collect()
    assert not heap.device_storages()


def test_empty_storages_are_not_blocks() -> None:
    heap, x = Heap(), torch.zeros(0)
    heap.mark(x, Place.DEVICE)
    assert not heap.blocks()


def test_own_memory_is_left_out_and_nests() -> None:
    heap = Heap()
    a, b, c = torch.zeros(1), torch.zeros(1), torch.zeros(1)
    with heap.own_memory():
        with heap.own_memory():
            heap.mark(a, Place.DEVICE)
        heap.mark(b, Place.DEVICE)
    heap.mark(c, Place.DEVICE)
    assert [block.address for block in heap.blocks()] == [c.data_ptr()]


def test_an_address_that_was_listed_is_asked_again() -> None:
    heap = Heap()
    x = torch.zeros(4)
    address = x.data_ptr()
    heap.mark(x, Place.DEVICE)
    assert [entry[0] for entry in heap.device_storages()] == [address]
    found = heap.storage_at(address)
    assert found is not None and found[0].data_ptr() == address
    heap.move(x, Place.HOST)
    assert heap.storage_at(address) is None
    heap.move(x, Place.DEVICE)
    del x, found
    assert heap.storage_at(address) is None


def test_storage_at_finds_the_storage_that_an_address_lies_in() -> None:
    heap, x = Heap(), torch.zeros(4)
    heap.mark(x, Place.DEVICE)
    found = heap.storage_at(x.data_ptr() + 15)
    assert found is not None and found[0].data_ptr() == x.data_ptr()
    assert heap.storage_at(x.data_ptr() + 16) is None and heap.storage_at(x.data_ptr() - 1) is None


def test_bytes_view_writes_through() -> None:
    x = torch.zeros(2, dtype=torch.int16)
    bytes_view(x.untyped_storage())[2] = 7
    assert x.tolist() == [0, 7]


def test_memory_that_only_a_graph_refers_to_counts_as_freed(backend: EmulatedBackend, capture: Capture) -> None:
    x, kept = torch.ones(5, device="cpu:0"), torch.zeros(5, device="cpu:0")

    def step(x: torch.Tensor = x) -> None:
        kept.copy_(x).add_(x)

    graph = capture(step)
    del step
    memory, address = memory_of(x), x.data_ptr()
    assert memory is not None and address in addresses(backend)
    del x
    gc.collect()
    assert address not in addresses(backend) and kept.data_ptr() in addresses(backend)
    graph.replay()
    assert kept.tolist() == [2] * 5, "the old bytes are still there"
    graph.reset()
    gc.collect()
    assert memory.storage() is None


def test_a_graph_that_goes_lets_go_of_what_others_hold(backend: EmulatedBackend, capture: Capture) -> None:
    x = torch.ones(5, device="cpu:0")
    graph = capture(lambda: x.add_(1))
    memory = memory_of(x)
    assert memory is not None and memory.held == 1
    del graph
    gc.collect()
    assert memory.held == 0 and x.data_ptr() in addresses(backend)


def test_temporaries_of_a_graph_are_no_blocks_and_its_outputs_are(backend: EmulatedBackend) -> None:
    x = torch.ones(3, device="cpu:0")
    graph = torch.cuda.CUDAGraph()
    before = addresses(backend)
    with torch.cuda.graph(graph):
        y = (x + 1) * 2
    (block,) = [block for block in backend.blocks() if block.address not in before]
    assert block.address == y.data_ptr() and block.pool == backend.log.graphs[0].pool


def test_a_deep_copy_is_where_its_original_is(backend: EmulatedBackend) -> None:
    module = torch.nn.BatchNorm1d(2).to("cpu:0")
    copied = copy.deepcopy(module)
    assert [t.device for t in (*copied.parameters(), *copied.buffers())] == [torch.device("cpu:0")] * 5
    assert copy.deepcopy(torch.zeros(2)).device == torch.device("cpu")
