"""The emulated backend: captures, replays, reads and lists blocks as a CUDA device would."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import torch

from cudagraph_doctor.errors import Inconclusive
from cudagraph_doctor.graph import emulated
from cudagraph_doctor.graph.backend import Backend
from cudagraph_doctor.graph.emulated import EmulatedBackend
from cudagraph_doctor.graph.model import NodeKind
from cudagraph_doctor.graph.regions import NamedRange, Regions

DEVICE = "cpu:0"


class Runner:
    """A decode runner as nano-vllm writes it: buckets from large to small in one pool, static buffers, replay."""

    def __init__(self, buckets: list[int], width: int = 4, device: str = "cuda") -> None:
        torch.set_default_device(device)
        self.buckets = buckets
        self.model = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.SiLU())
        self.cache = torch.zeros(16, width)
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self.vars = {
            "x": torch.zeros(max(buckets), width),
            "slots": torch.full((max(buckets),), 15, dtype=torch.int64),
            "out": torch.zeros(max(buckets), width),
        }
        torch.set_default_device("cpu")

    def step(self, x: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
        """Write the new rows into the cache, mix in what was there."""
        h: torch.Tensor = self.model(x) + self.cache[slots]
        self.cache[slots] = h
        return h

    @torch.inference_mode()
    def capture(self) -> None:
        """Warm up and capture each bucket."""
        pool = None
        for bucket in reversed(self.buckets):
            graph = torch.cuda.CUDAGraph()
            x, slots, out = (self.vars[name][:bucket] for name in ("x", "slots", "out"))
            out[:] = self.step(x, slots)
            with torch.cuda.graph(graph, pool):
                out[:] = self.step(x, slots)
            if pool is None:
                pool = graph.pool()
            self.graphs[bucket] = graph
            torch.cuda.synchronize()

    @torch.inference_mode()
    def run(self, rows: list[list[float]], slots: list[int], eager: bool = False) -> torch.Tensor:
        """One step, staged through pinned memory."""
        x = torch.tensor(rows, pin_memory=True).cuda(non_blocking=True)
        at = torch.tensor(slots, dtype=torch.int64, pin_memory=True).cuda(non_blocking=True)
        if eager:
            return self.step(x, at).clone()
        bucket = next(b for b in self.buckets if b >= len(x))
        self.vars["slots"].fill_(15)
        self.vars["slots"][: len(x)] = at
        self.vars["x"][: len(x)] = x
        self.graphs[bucket].replay()
        return self.vars["out"][: len(x)].clone()


@pytest.fixture
def backend() -> Iterator[EmulatedBackend]:
    backend = EmulatedBackend()
    with backend.installed():
        yield backend


def test_it_is_a_backend() -> None:
    backend: Backend = EmulatedBackend()
    assert backend.name == "emulated"
    assert backend.not_checked()


def test_where_cuda_answers_otherwise_is_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulated, "NOT_REFUSED", ("inv", "solve"))
    monkeypatch.setattr(emulated, "REFUSED_IN_VAIN", ("index by a list (compiled)",))
    only_cuda, only_here = EmulatedBackend().not_checked()[-2:]
    assert only_cuda == "what a capture refuses on CUDA only: inv, solve"
    assert only_here.endswith("which it does not where it was tried: index by a list (compiled)")
    monkeypatch.setattr(emulated, "NOT_REFUSED", ())
    assert not any("on CUDA only" in sentence for sentence in EmulatedBackend().not_checked())


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


def test_a_runner_of_the_users_gives_eager_results(backend: EmulatedBackend) -> None:
    runner = Runner([1, 2, 4, 8])
    runner.capture()
    assert len({live.pool for live in backend.log.graphs}) == 1
    runner.cache.zero_()
    arms = []
    for eager in (True, False):
        runner.cache.zero_()
        outs = [
            runner.run([[float(step + row)] * 4 for row in range(n)], [(step + row) % 8 for row in range(n)], eager)
            for step, n in enumerate((4, 3, 1, 4, 7, 8, 2))
        ]
        arms.append((outs, runner.cache[:8].clone()))
    (eager_outs, eager_cache), (outs, cache) = arms
    assert all(torch.allclose(a, b) for a, b in zip(eager_outs, outs, strict=True))
    assert torch.allclose(eager_cache, cache) and eager_cache.abs().sum() > 0
    assert sum(live.replays for live in backend.log.graphs) == 7


def test_a_rebound_static_input_is_ignored_by_the_replay(backend: EmulatedBackend) -> None:
    runner = Runner([2])
    runner.capture()
    address = runner.vars["x"].data_ptr()
    right = runner.run([[1.0] * 4] * 2, [0, 1])
    runner.vars["x"] = torch.ones(2, 4, device="cuda")
    runner.cache.zero_()
    wrong = runner.run([[5.0] * 4] * 2, [0, 1])
    assert torch.equal(right, wrong), "the captured buffer still holds the old step"
    (live,) = backend.log.graphs
    freed = [
        pointer
        for node in backend.read(live, Regions()).nodes
        for param in node.params
        for pointer in param.pointers
        if pointer.region.kind == "freed"
    ]
    assert {pointer.address for pointer in freed} == {address}


def test_a_graph_that_is_gone_cannot_be_read(backend: EmulatedBackend) -> None:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.zeros(1, device=DEVICE)
    (live,) = backend.log.graphs
    assert len(backend.read(live, Regions()).nodes) == 1
    graph.reset()
    with pytest.raises(Inconclusive, match="graph 0 is gone"):
        backend.read(live, Regions())
    with torch.cuda.graph(graph):
        torch.zeros(1, device=DEVICE)
    with pytest.raises(Inconclusive, match="graph 0 is gone"), backend.patched(live, []):
        pass


def test_a_block_that_is_gone_has_no_bytes(backend: EmulatedBackend) -> None:
    x = torch.zeros(3, device=DEVICE)
    (block,) = [block for block in backend.blocks() if block.address == x.data_ptr()]
    del x
    gc.collect()
    with pytest.raises(Inconclusive, match="block of 12 bytes"):
        backend.bytes_of(block)


def test_small_answers(backend: EmulatedBackend) -> None:
    x = torch.zeros(1, device=DEVICE)
    assert not backend.is_host(x) and backend.is_host(x.cpu()) and backend.is_host(torch.zeros(1, pin_memory=True))
    assert backend.free_bytes() > 0
    backend.synchronize()
    backend.delay(1000.0)
    ran: list[int] = []
    assert backend.trace_origins(lambda: ran.append(1)) == [] and not ran
