"""The watching CUDAGraph behaves as torch's, and tells of captures and replays."""

from __future__ import annotations

import gc
import inspect
import subprocess
import sys
from typing import Any

import pytest
import torch

from cudagraph_doctor.errors import Inconclusive
from cudagraph_doctor.graph.regions import Regions

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")]


def test_captures_and_replays_are_logged_with_the_users_line(gpu: Any) -> None:
    x = torch.zeros(4, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x.add_(1)
    (live,) = gpu.backend.log.graphs
    assert live.graph() is graph and live.nodes == 1 and live.pool
    assert live.captured_at.file == __file__
    assert live.captured_at.line == inspect.currentframe().f_code.co_firstlineno + 3  # type: ignore[union-attr]
    assert live.captured_at.code == "with torch.cuda.graph(graph):"
    for _ in range(3):
        graph.replay()
    assert live.replays == gpu.backend.log.replays == 3
    assert x.eq(3).all()


def test_without_keep_graph_torch_refuses_what_it_refuses(gpu: Any) -> None:
    x = torch.zeros(4, device="cuda")
    graph, _ = gpu.capture(lambda: x.add_(1))
    with pytest.raises(RuntimeError, match="keep_graph"):
        graph.raw_cuda_graph()
    with pytest.raises(RuntimeError, match="keep_graph"):
        graph.instantiate()


def test_with_keep_graph_the_user_instantiates(gpu: Any) -> None:
    x = torch.zeros(4, device="cuda")
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        x.add_(1)
    assert graph.raw_cuda_graph()
    with pytest.raises(RuntimeError):
        graph.raw_cuda_graph_exec()
    graph.instantiate()
    assert graph.raw_cuda_graph_exec()
    graph.replay()
    assert x.eq(1).all() and len(gpu.backend.read(gpu.backend.log.graphs[-1], Regions()).nodes) == 1


def test_begin_and_end_by_hand_on_a_shared_pool(gpu: Any) -> None:
    x = torch.zeros(4, device="cuda")
    pool = torch.cuda.graph_pool_handle()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    kept: list[object] = []
    for _ in range(2):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(stream):
            graph.capture_begin(pool, "thread_local")
            kept.append(x + 1)
            graph.capture_end()
        kept.append(graph)
    first, second = gpu.backend.log.graphs
    assert first.pool == second.pool != ""
    assert "capture_begin" in first.captured_at.code


def test_make_graphed_callables(gpu: Any) -> None:
    module = torch.nn.Linear(8, 8).cuda()
    sample = torch.randn(2, 8, device="cuda")
    with torch.no_grad():  # a gradient graph of the default stream would break the capture of the backward pass
        expected = module(sample)
    graphed: Any = torch.cuda.make_graphed_callables(module, (sample.clone(),))
    assert torch.allclose(graphed(sample), expected)
    assert gpu.backend.log.graphs and gpu.backend.log.replays >= 1
    assert gpu.backend.log.graphs[0].captured_at.file == __file__


def test_compiled_with_cudagraphs_is_seen(gpu: Any) -> None:
    compiled = torch.compile(lambda x: (x * 2 + 1).relu(), mode="reduce-overhead")
    x = torch.ones(64, device="cuda")
    with torch.no_grad():
        for _ in range(4):
            out = compiled(x).clone()
    assert out.eq(3).all()
    assert gpu.backend.log.graphs and gpu.backend.log.replays


def test_a_users_subclass(gpu: Any) -> None:
    class Mine(torch.cuda.CUDAGraph):
        def replay(self) -> None:
            super().replay()
            self.count = int(getattr(self, "count", 0)) + 1

    x = torch.zeros(4, device="cuda")
    graph = Mine()
    with torch.cuda.graph(graph):
        x.add_(1)
    graph.replay()
    assert graph.count == gpu.backend.log.graphs[-1].replays == 1


def test_a_failing_capture_is_no_graph(gpu: Any, stream_restored: Any) -> None:
    x = torch.zeros(4, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError), torch.cuda.graph(graph):
        x.sum().item()
    assert not gpu.backend.log.graphs
    torch.cuda.set_stream(stream_restored)
    again, live = gpu.capture(lambda: x.add_(1))
    again.replay()
    assert x.ne(0).all() and gpu.backend.log.graphs == [live]


FAILING = """
import gc
import torch
from cudagraph_doctor.graph.cuda import CudaBackend
from cudagraph_doctor.graph.driver import bindings, call

def item():
    x.sum().item()

def unjoined():
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        x.add_(1)

def launch():
    call("cuGraphLaunch", bindings().CUgraphExec(good.raw_cuda_graph_exec()), torch.cuda.current_stream().cuda_stream)

def begin_again():
    torch.cuda.CUDAGraph().capture_begin()

def capture(step):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph

backend = CudaBackend()
x = torch.zeros(4, device="cuda")
x.sum().item(), x.add_(1)
with backend.installed():
    good = capture(lambda: x.add_(1))
    for step in (item, unjoined, launch, begin_again):
        try:
            capture(step)
        except RuntimeError as error:
            print(step.__name__, "refused:", str(error).splitlines()[0])
        torch.cuda.set_stream(torch.cuda.default_stream())
        gc.collect()

        torch.cuda.empty_cache()
        reserved = torch.cuda.memory_reserved()
        large = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
        del large
        torch.cuda.empty_cache()
        print("kept", torch.cuda.memory_reserved() - reserved)

        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            torch.empty(1 << 20, device="cuda")
        del pool
        gc.collect()

    x.fill_(1)
    capture(lambda: x.mul_(3)).replay()
    good.replay()
    torch.rand(4, device="cuda")
    print("right" if x.tolist() == [4.0] * 4 else x)
"""


def test_failed_captures_cost_no_process_and_no_memory() -> None:
    """In a process of its own: torch ends it if a MemPool dies while its allocator believes in a capture."""
    done = subprocess.run(
        [sys.executable, "-c", FAILING], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120
    )
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines if "refused" in line] == ["item", "unjoined", "launch", "begin_again"]
    assert lines.count("kept 0") == 4 and lines[-1] == "right"


def test_a_capture_whose_body_raised_is_no_graph(gpu: Any) -> None:
    x = torch.zeros(4, device="cuda")
    with pytest.raises(KeyError), torch.cuda.graph(torch.cuda.CUDAGraph()):
        x.add_(1)
        raise KeyError("bucket")
    assert not gpu.backend.log.graphs


def test_a_capture_inside_an_except_block_counts(gpu: Any) -> None:
    x = torch.zeros(4, device="cuda")
    try:
        raise KeyError("no graph yet")
    except KeyError:
        _, live = gpu.capture(lambda: x.add_(1))
    assert gpu.backend.log.graphs == [live]


@pytest.mark.parametrize("how", ["dropped", "reset", "captured anew"])
def test_a_graph_that_is_gone_says_so(gpu: Any, how: str) -> None:
    x = torch.zeros(4, device="cuda")
    graph, live = gpu.capture(lambda: x.add_(1))
    if how == "dropped":
        del graph
        gc.collect()
    else:
        graph.reset()
    if how == "captured anew":
        with torch.cuda.graph(graph):
            x.add_(2)
        assert len(gpu.backend.read(gpu.backend.log.graphs[-1], Regions()).nodes) == 1
    with pytest.raises(Inconclusive, match=r"graph 0 \(captured at .*conftest.py:\d+\) is gone"):
        gpu.backend.read(live, Regions())


def test_the_hooks_come_out_again(gpu: Any) -> None:
    watched = torch.cuda.CUDAGraph
    assert torch.cuda.graphs.CUDAGraph is watched
    with gpu.backend.installed():
        assert torch.cuda.CUDAGraph is watched
    assert isinstance(watched(), watched.__mro__[1]) and watched.__mro__[1].__module__ == "torch.cuda.graphs"
