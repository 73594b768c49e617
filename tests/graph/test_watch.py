"""The watching subclass over a stand-in for torch's CUDAGraph, and where it is installed."""

from __future__ import annotations

import gc
import sys
import types
from typing import Any

import pytest

from cudagraph_doctor.graph.backend import GraphLog, LiveGraph
from cudagraph_doctor.graph.watch import graph_of, installed, watching


class CUDAGraph:
    """What torch does, as far as the subclass leans on it."""

    def __init__(self, keep_graph: bool = False) -> None:
        self.kept, self.calls, self.fails = keep_graph, list[str](), False

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
        self.calls.append(f"begin {pool} {capture_error_mode}")

    def capture_end(self) -> None:
        if self.fails:
            raise RuntimeError("operation failed due to a previous error during capture")
        self.calls.append("end")

    def instantiate(self) -> None:
        self.calls.append("instantiate")

    def replay(self) -> None:
        self.calls.append("replay")

    def reset(self) -> None:
        self.calls.append("reset")

    def raw_cuda_graph(self) -> int:
        return 77


class Capturing:
    """As `torch.cuda.graph`: ends the capture also when its body raised."""

    def __init__(self, graph: Any) -> None:
        self.graph = graph

    def __enter__(self) -> None:
        self.graph.capture_begin()

    def __exit__(self, *raised: object) -> None:
        self.graph.capture_end()


@pytest.fixture
def log() -> GraphLog:
    return GraphLog()


@pytest.fixture
def watched(log: GraphLog) -> Any:
    def captured(live: LiveGraph, graph: Any) -> None:
        live.pool = "0.1"

    return watching(CUDAGraph, log, captured)


def test_the_graph_is_kept_and_instantiated_as_the_user_would_have_it(watched: Any) -> None:
    graph = watched()
    graph.capture_begin("pool", capture_error_mode="relaxed")
    graph.capture_end()
    assert graph.kept and graph.calls == ["begin pool relaxed", "end", "instantiate"]
    for refused in (graph.instantiate, graph.raw_cuda_graph):
        with pytest.raises(RuntimeError, match="keep_graph=true"):
            refused()


def test_a_user_who_keeps_the_graph_instantiates_it(watched: Any) -> None:
    graph = watched(keep_graph=True)
    with Capturing(graph):
        pass
    assert graph.calls == ["begin None global", "end"] and graph.raw_cuda_graph() == 77
    graph.instantiate()
    assert graph.calls[-1] == "instantiate"


def test_the_log_has_the_capture_when_its_listeners_are_called(watched: Any, log: GraphLog) -> None:
    heard: list[tuple[str, LiveGraph]] = []
    with log.listening(
        captured=lambda live: heard.append((f"captured {live.pool}", live)),
        replaying=lambda live: heard.append((f"replay {live.replays}", live)),
    ):
        graph = watched()
        with Capturing(graph):
            pass
        graph.replay()
        graph.replay()
    graph.replay()
    (live,) = log.graphs
    assert heard == [("captured 0.1", live), ("replay 1", live), ("replay 2", live)]
    assert (live.ordinal, live.replays, log.replays, graph_of(live)) == (0, 3, 3, graph)


def test_the_line_that_opened_the_capture(watched: Any, log: GraphLog) -> None:
    graph = watched()
    graph.capture_begin()
    line = sys._getframe().f_lineno - 1
    graph.capture_end()
    where = log.graphs[0].captured_at
    assert where is not None
    assert (where.file, where.line, where.code) == (__file__, line, "graph.capture_begin()")


def test_failed_captures_are_no_graphs(watched: Any, log: GraphLog) -> None:
    graph = watched()
    graph.fails = True
    with pytest.raises(RuntimeError, match="previous error"), Capturing(graph):
        pass
    with pytest.raises(KeyError), Capturing(watched()):
        raise KeyError("in the body")
    assert log.graphs == []


def test_a_capture_while_an_error_is_handled_counts(watched: Any, log: GraphLog) -> None:
    try:
        raise KeyError("no graph of this bucket yet")
    except KeyError:
        graph = watched()
        with Capturing(graph):
            pass
    assert [live.graph() for live in log.graphs] == [graph]


def test_the_log_does_not_keep_graphs_alive(watched: Any, log: GraphLog) -> None:
    graph = watched()
    with Capturing(graph):
        pass
    del graph
    gc.collect()
    assert graph_of(log.graphs[0]) is None


def test_a_reset_graph_can_be_captured_anew_as_another(watched: Any, log: GraphLog) -> None:
    graph = watched()
    with Capturing(graph):
        pass
    graph.reset()
    assert graph_of(log.graphs[0]) is None
    with Capturing(graph):
        pass
    old, new = log.graphs
    assert graph_of(old) is None and graph_of(new) is graph and new.ordinal == 1


def test_it_passes_for_the_original(watched: Any) -> None:
    assert isinstance(watched(), CUDAGraph)
    assert (watched.__name__, watched.__module__, watched.__doc__) == ("CUDAGraph", __name__, CUDAGraph.__doc__)


def test_installed_in_every_module_and_taken_out_again(watched: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    places = [types.ModuleType("first_place"), types.ModuleType("second_place")]
    for place in places:
        monkeypatch.setitem(sys.modules, place.__name__, place)
        vars(place)["CUDAGraph"] = CUDAGraph
    with pytest.raises(KeyError), installed(watched, ("first_place", "second_place")):
        assert all(vars(place)["CUDAGraph"] is watched for place in places)
        raise KeyError("the target failed")
    assert all(vars(place)["CUDAGraph"] is CUDAGraph for place in places)
