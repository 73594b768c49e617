"""CUDAGraph and graph: their arguments, their errors, what the log is told."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest
import torch

from cudagraph_doctor.errors import Inconclusive
from cudagraph_doctor.graph.backend import LiveGraph
from cudagraph_doctor.graph.emulated import EmulatedBackend

DEVICE = "cpu:0"


def test_pools(backend: EmulatedBackend) -> None:
    shared = torch.cuda.graph_pool_handle()
    assert shared != torch.cuda.graph_pool_handle()
    a, b, c = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match=r"pool\(\) without a preceding successful capture"):
        a.pool()
    for graph, pool in ((a, shared), (b, shared), (c, None)):
        with torch.cuda.graph(graph, pool=pool):
            pass
    assert a.pool() == b.pool() == shared != c.pool()
    first, second, third = (live.pool for live in backend.log.graphs)
    assert first == second != third and isinstance(first, str)


def test_capture_and_replay_without_the_context_manager(backend: EmulatedBackend) -> None:
    x = torch.zeros(2, device=DEVICE)
    graph, stream = torch.cuda.CUDAGraph(keep_graph=True), torch.cuda.Stream()
    with torch.cuda.stream(stream):
        graph.capture_begin(pool=None, capture_error_mode="thread_local")
        x.add_(1)
        graph.capture_end()
    graph.instantiate()
    graph.enable_debug_mode()
    graph.replay()
    assert x.tolist() == [1, 1]


def test_all_arguments_of_graph(backend: EmulatedBackend) -> None:
    stream = torch.cuda.Stream()
    with torch.cuda.graph(
        torch.cuda.CUDAGraph(),
        pool=torch.cuda.graph_pool_handle(),
        stream=stream,
        capture_error_mode="relaxed",
        enable_annotations=False,
        check_input_liveness=True,
    ):
        assert torch.cuda.current_stream() == stream
        torch.cuda.Stream().query()
    assert torch.cuda.current_stream() == torch.cuda.default_stream()


def test_misuse(backend: EmulatedBackend) -> None:
    graph: Any = torch.cuda.CUDAGraph()
    stream = torch.cuda.Stream()
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        graph.capture_end()
    with torch.cuda.stream(stream):
        with pytest.raises(RuntimeError, match="Unknown capture error mode"):
            graph.capture_begin(capture_error_mode="strict")
        graph.capture_begin()
        with torch.cuda.stream(torch.cuda.Stream()), pytest.raises(RuntimeError, match="same stream it began on"):
            graph.capture_end()
        graph.capture_end()
        with pytest.raises(RuntimeError, match="already owns a captured graph"):
            graph.capture_begin()
    with pytest.raises(RuntimeError, match="keep_graph=true"):
        graph.instantiate()


@pytest.mark.parametrize("method", ["raw_cuda_graph", "raw_cuda_graph_exec"])
def test_there_is_no_cuda_graph_to_hand_out(backend: EmulatedBackend, method: str) -> None:
    with pytest.raises(Inconclusive, match=rf"{method}\(\) is not emulated"):
        getattr(torch.cuda.CUDAGraph(keep_graph=True), method)()
    with pytest.raises(Inconclusive, match="debug_dump"):
        torch.cuda.CUDAGraph().debug_dump("graph.dot")


def test_a_graph_inside_a_capture_is_not_emulated(backend: EmulatedBackend) -> None:
    inner = torch.cuda.CUDAGraph()
    with torch.cuda.graph(inner):
        pass
    with pytest.raises(Inconclusive, match="child graph"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        inner.replay()


def test_a_graph_that_was_reset_can_capture_anew(backend: EmulatedBackend) -> None:
    x = torch.zeros(2, device=DEVICE)
    graph: Any = torch.cuda.CUDAGraph()
    for step in (1, 10):
        with torch.cuda.graph(graph):
            x.add_(step)
        graph.replay()
        graph.reset()
    assert x.tolist() == [11, 11] and len(backend.log.graphs) == 2


def test_subclasses_as_engines_write_them(backend: EmulatedBackend) -> None:
    class Named(torch.cuda.CUDAGraph):
        def __new__(cls, name: str, keep_graph: bool = False) -> Named:
            return super().__new__(cls, keep_graph)

        def __init__(self, name: str, keep_graph: bool = False) -> None:
            super().__init__(keep_graph)  # type: ignore[call-arg]
            self.name = name

    graph = Named("decode")
    with torch.cuda.graph(graph):
        pass
    graph.replay()
    assert graph.name == "decode" and isinstance(graph, torch.cuda.CUDAGraph)


def test_what_the_log_is_told(backend: EmulatedBackend) -> None:
    x = torch.zeros(2, device=DEVICE)
    captured: list[LiveGraph] = []
    replaying: list[tuple[LiveGraph, float]] = []
    graph: Any = torch.cuda.CUDAGraph()
    with backend.log.listening(captured.append, lambda live: replaying.append((live, x[0].item()))):
        with torch.cuda.graph(graph):
            x.add_(1)
        graph.replay()
        graph.replay()
    (live,) = captured
    assert replaying == [(live, 0), (live, 1)], "told before it runs"
    assert live.graph() is graph and live.replays == 2 and live.nodes == 1 and live.ordinal == 0
    assert live.captured_at is not None and live.captured_at.code == "with torch.cuda.graph(graph):"


def test_the_log_does_not_keep_graphs_alive(backend: EmulatedBackend) -> None:
    graph: Any = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        pass
    del graph
    gc.collect()
    assert backend.log.graphs[0].graph() is None


def test_a_capture_while_an_exception_is_handled_counts(backend: EmulatedBackend) -> None:
    try:
        raise KeyError
    except KeyError:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            pass
    assert len(backend.log.graphs) == 1


def test_a_capture_in_another_thread_is_refused(backend: EmulatedBackend) -> None:
    errors: list[BaseException] = []

    def capture() -> None:
        try:
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                pass
        except Inconclusive as error:
            errors.append(error)

    thread = threading.Thread(target=capture)
    thread.start()
    thread.join()
    assert "another thread" in str(errors[0])


def test_other_threads_do_not_disturb_a_capture(backend: EmulatedBackend) -> None:
    x = torch.zeros(2, device=DEVICE)
    graph: Any = torch.cuda.CUDAGraph()

    def work() -> None:
        torch.zeros(3).add_(1)
        assert x.device == torch.device(DEVICE)

    with torch.cuda.graph(graph):
        x.add_(1)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert len(graph.recording.nodes) == 1


def test_graphed_modules_and_functions(backend: EmulatedBackend) -> None:
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    layer = torch.nn.Linear(3, 2).to(DEVICE).requires_grad_(False)
    sample = torch.zeros(1, 3, device=DEVICE)
    graphed: Any = torch.cuda.make_graphed_callables((layer, double), ((sample,), (sample.clone(),)))
    x = torch.ones(1, 3, device=DEVICE)
    assert torch.equal(graphed[0](x), torch.nn.functional.linear(x, layer.weight, layer.bias))
    assert graphed[1](x).tolist() == [[2, 2, 2]]
