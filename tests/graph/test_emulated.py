"""The emulated backend: captures, replays, reads and lists blocks as a CUDA device would."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import torch

from cudagraph_doctor.graph.backend import Backend
from cudagraph_doctor.graph.emulated import EmulatedBackend
from cudagraph_doctor.graph.model import NodeKind
from cudagraph_doctor.graph.regions import NamedRange, Regions

DEVICE = "cpu:0"


@pytest.fixture
def backend() -> Iterator[EmulatedBackend]:
    backend = EmulatedBackend()
    with backend.installed():
        yield backend


def test_it_is_a_backend() -> None:
    backend: Backend = EmulatedBackend()
    assert backend.name == "emulated"
    assert backend.not_checked()


def test_replay_runs_on_new_contents_and_frozen_scalars(backend: EmulatedBackend) -> None:
    x = torch.zeros(3, device=DEVICE)
    factor = 2.0
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x * factor
    factor = 5.0
    x.fill_(3)
    graph.replay()
    assert y.cpu().tolist() == [6.0, 6.0, 6.0]


def test_capture_changes_nothing_that_existed(backend: EmulatedBackend) -> None:
    cache = torch.zeros(4, device=DEVICE)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        cache.add_(1)
        cache[1:].mul_(3)
    assert cache.cpu().tolist() == [0, 0, 0, 0]
    graph.replay()
    graph.replay()
    assert cache.cpu().tolist() == [2, 12, 12, 12]


def test_outputs_are_undefined_until_the_first_replay(backend: EmulatedBackend) -> None:
    x = torch.ones(2, device=DEVICE)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x + 1
    assert y.cpu().tolist() == [0, 0]
    graph.replay()
    assert y.cpu().tolist() == [2, 2]


def test_position_advanced_inside_the_graph(backend: EmulatedBackend) -> None:
    position = torch.zeros(1, dtype=torch.long, device=DEVICE)
    table = torch.arange(10, device=DEVICE)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = table.index_select(0, position)
        position += 1
    seen = []
    for _ in range(3):
        graph.replay()
        seen.append(out.item())
    assert seen == [0, 1, 2]


def test_read_gives_operators_scalars_and_pointers(backend: EmulatedBackend) -> None:
    x = torch.zeros(3, device=DEVICE)
    w = torch.zeros(3, device=DEVICE)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x * 7.0
        w.copy_(y)
        w.zero_()
    (live,) = backend.log.graphs
    regions = Regions([NamedRange("input", "x", x.data_ptr(), 12)])
    read = backend.read(live, regions, "4")
    mul, copy, zero = read.nodes
    assert (mul.kind, copy.kind, zero.kind) == (NodeKind.KERNEL, NodeKind.MEMCPY, NodeKind.MEMSET)
    assert mul.name == "aten.mul.Tensor"
    assert [p.name for p in mul.params] == ["self", "other", "out"]
    assert mul.params[1].value == 7.0
    assert mul.params[0].pointers[0].address == x.data_ptr()
    assert str(mul.params[0].pointers[0].region) == 'input "x"'
    assert mul.params[2].pointers[0].region.kind == "pool"
    assert mul.origin is not None and mul.origin.location is not None
    assert mul.origin.location.code == "y = x * 7.0"
    assert read.edges == ((0, 1), (1, 2))
    assert live.nodes == 3 and live.captured_at is not None and "torch.cuda.graph" in live.captured_at.code


def test_blocks_list_live_device_memory_only(backend: EmulatedBackend) -> None:
    before = {block.address for block in backend.blocks()}
    x = torch.zeros(8, device=DEVICE)
    host = torch.zeros(8)
    with backend.own_memory():
        own = x.clone()
    addresses = {block.address: block for block in backend.blocks() if block.address not in before}
    assert set(addresses) == {x.data_ptr()}
    assert addresses[x.data_ptr()].bytes == 32
    assert host.data_ptr() not in addresses and own.data_ptr() not in addresses
    view = backend.bytes_of(addresses[x.data_ptr()])
    x.fill_(1.0)
    assert view.dtype == torch.uint8 and view.view(torch.float32)[0] == 1.0
    address = x.data_ptr()
    del x, view
    gc.collect()
    assert address not in {block.address for block in backend.blocks()}
