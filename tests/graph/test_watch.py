"""The watching subclass over a stand-in for torch's CUDAGraph, and where it is installed."""

from __future__ import annotations

import gc
import sys
import types
import weakref
from typing import Any

import pytest
import torch

from cudagraph_doctor.graph.backend import GraphLog, LiveGraph
from cudagraph_doctor.graph.watch import graph_of, installed, watching


class CUDAGraph:
    """What torch does, as far as the subclass leans on it."""

    def __init__(self, keep_graph: bool = False) -> None:
        self.kept, self.calls = keep_graph, list[str]()
        self.refuses: dict[str, RuntimeError] = {}

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
        if "begin" in self.refuses:
            raise self.refuses["begin"]
        self.calls.append(f"begin {pool} {capture_error_mode}")

    def capture_end(self) -> None:
        if "end" in self.refuses:
            raise self.refuses["end"]
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
def failed() -> list[Any]:
    """Pools of captures that failed."""
    return []


@pytest.fixture
def watched(log: GraphLog, failed: list[Any]) -> Any:
    def captured(live: LiveGraph, graph: Any) -> None:
        live.pool = "0.1"

    return watching(CUDAGraph, log, captured, new_pool=lambda: "new", failed=failed.append)


REFUSED = torch.AcceleratorError("CUDA error: operation failed due to a previous error during capture")


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
    assert graph.calls == ["begin new global", "end"] and graph.raw_cuda_graph() == 77
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
    graph.refuses["end"] = REFUSED
    with pytest.raises(RuntimeError, match="previous error"), Capturing(graph):
        pass
    with pytest.raises(KeyError), Capturing(watched()):
        raise KeyError("in the body")
    assert log.graphs == []


@pytest.mark.parametrize(("pool", "reported"), [(None, "new"), ((0, 3), (0, 3))])
@pytest.mark.parametrize("moment", ["begin", "end"])
def test_the_pool_of_a_capture_that_cuda_refuses_is_reported(
    watched: Any, failed: list[Any], moment: str, pool: Any, reported: Any
) -> None:
    graph = watched()
    graph.refuses[moment] = REFUSED
    with pytest.raises(torch.AcceleratorError):
        graph.capture_begin(pool)
        graph.capture_end()
    assert failed == [reported]


def test_a_capture_that_torch_refuses_to_end_goes_on(watched: Any, failed: list[Any], log: GraphLog) -> None:
    graph = watched()
    graph.capture_begin()
    graph.refuses["end"] = RuntimeError("Capture must end on the same stream it began on.")
    with pytest.raises(RuntimeError, match="same stream"):
        graph.capture_end()
    graph.refuses.clear()
    graph.capture_end()
    assert failed == [] and len(log.graphs) == 1


@pytest.mark.parametrize("refuses", [{"begin": REFUSED}, {"end": REFUSED}, {"end": RuntimeError("same stream")}])
def test_a_graph_whose_capture_failed_is_never_destroyed(watched: Any, refuses: dict[str, RuntimeError]) -> None:
    graph = watched()
    graph.refuses = refuses
    with pytest.raises(RuntimeError):
        graph.capture_begin()
        graph.capture_end()
    seen = weakref.ref(graph)
    del graph
    gc.collect()
    assert seen() is not None


def test_nor_is_one_that_is_dropped_while_it_captures(watched: Any) -> None:
    graph = watched()
    graph.capture_begin()
    seen = weakref.ref(graph)
    del graph
    gc.collect()
    assert seen() is not None


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
