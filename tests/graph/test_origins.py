"""Spans from a made-up capture on the CPU, and their belief: only where the judged graph agrees."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
import torch

from cudagraph_doctor.findings import Location
from cudagraph_doctor.graph.backend import GraphLog, LiveGraph
from cudagraph_doctor.graph.cupti import Unavailable
from cudagraph_doctor.graph.model import CapturedGraph, GraphNode, NodeKind, Origin
from cudagraph_doctor.graph.origins import ModulePath, Span, Trace, attach, trace


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(4, 4, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.up(x).relu() + 1  # type: ignore[no-any-return]


class Capture:
    """A capture that goes on: nodes are counted by whoever launches."""

    def __init__(self, *counts: int | None) -> None:
        self.counts: Iterator[int | None] = iter(counts)
        self.id = 1

    def __call__(self) -> tuple[int, int] | None:
        count = next(self.counts)
        return None if count is None else (self.id, count)


class Creations:
    """CUPTI, as far as it matters: `tell` as often as nodes are created."""

    def __init__(self) -> None:
        self.tell: Callable[[], None] = lambda: None

    @contextmanager
    def __call__(self, heard: Callable[[], None]) -> Iterator[None]:
        self.tell = heard
        yield
        self.tell = lambda: None


@contextmanager
def no_creations(heard: Callable[[], None]) -> Iterator[None]:
    raise Unavailable("CUPTI takes no subscriber")
    yield


def traced(
    step: Callable[[], object],
    capture: Capture,
    total: int,
    modules: dict[str, torch.nn.Module] | None = None,
    creations: Callable[[Callable[[], None]], AbstractContextManager[None]] = no_creations,
) -> list[Trace]:
    log = GraphLog()

    def run() -> None:
        step()
        log.captured(LiveGraph(0, weakref.ref(capture)))

    return trace(log, run, modules or {}, capture, lambda live: tuple("abcdefgh"[:total]), creations)


def spans(found: Trace) -> list[tuple[int, int, str, str]]:
    return [(span.first, span.stop, span.origin.module, span.origin.operator) for span in found.spans]


def test_operators_get_the_nodes_that_came_with_them() -> None:
    layer, x = Layer(), torch.ones(2, 4)
    # before and after each of: t (no node), mm (two), relu (one, after one from outside the dispatcher), add (one)
    counts = Capture(0, 0, 0, 2, 3, 4, 4, 5)
    with torch.no_grad():
        (found,) = traced(lambda: layer(x), counts, 6, {"layers.0": layer})
    assert spans(found) == [
        (0, 2, "layers.0.up", "aten.mm.default"),
        (2, 3, "layers.0", ""),
        (3, 4, "layers.0", "aten.relu.default"),
        (4, 5, "layers.0", "aten.add.Tensor"),
        (5, 6, "", ""),
    ]
    where = found.spans[0].origin.location
    assert where is not None and where.file == __file__ and where.code.startswith("return self.up(x)")
    assert found.spans[1].origin.location is None and found.no_lines == "CUPTI takes no subscriber"


def test_launches_outside_the_dispatcher_have_the_line_that_was_running_when_their_node_was_created() -> None:
    cupti, x = Creations(), torch.ones(2)

    def step() -> None:
        cupti.tell()  # first
        cupti.tell()  # second
        x.relu()
        cupti.tell()  # last

    (found,) = traced(step, Capture(2, 3), 4, creations=cupti)
    lines = [span.origin.location.code if span.origin.location else "" for span in found.spans]
    assert lines == ["cupti.tell()  # first", "cupti.tell()  # second", "x.relu()", "cupti.tell()  # last"]
    assert spans(found)[2] == (2, 3, "", "aten.relu.default") and found.no_lines == ""


def test_creations_that_do_not_fit_the_nodes_give_no_lines() -> None:
    cupti, x = Creations(), torch.ones(2)

    def step() -> None:
        cupti.tell()
        cupti.tell()  # inside a child graph, say
        x.relu()

    (found,) = traced(step, Capture(1, 2), 2, creations=cupti)
    assert found.spans[0] == Span(0, 1, Origin())


def test_creations_outside_of_a_capture_are_forgotten() -> None:
    cupti, x = Creations(), torch.ones(2)

    def step() -> None:
        cupti.tell()  # in a graph built by hand
        x.relu()
        cupti.tell()  # captured
        x.neg()

    (found,) = traced(step, Capture(None, None, 1, 2), 2, creations=cupti)
    where = found.spans[0].origin.location
    assert where is not None and where.code == "cupti.tell()  # captured"


def test_a_stream_that_does_not_capture_is_no_part() -> None:
    x = torch.ones(2)
    (found,) = traced(lambda: x.relu().neg(), Capture(None, None, 0, 1), 1)
    assert spans(found) == [(0, 1, "", "aten.neg.default")]


def test_what_a_failed_capture_left_is_dropped() -> None:
    x, capture = torch.ones(2), Capture(0, 3, 0, 1)

    def step() -> None:
        x.relu()
        capture.id = 2
        x.neg()

    (found,) = traced(step, capture, 1)
    assert spans(found) == [(0, 1, "", "aten.neg.default")]


def test_the_hooks_are_out_after_a_failure() -> None:
    def fail() -> None:
        raise KeyError("in the step")

    with pytest.raises(KeyError):
        traced(fail, Capture(), 0)
    torch.ones(2).relu()  # would ask the exhausted capture


def test_module_paths_nest_and_end_with_a_failing_module() -> None:
    class Failing(torch.nn.Module):
        def forward(self) -> None:
            seen.append(paths.current)
            raise KeyError("in forward")

    class Outer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Failing()

        def forward(self) -> None:
            seen.append(paths.current)
            try:
                self.inner()
            except KeyError:
                seen.append(paths.current)

    seen: list[str] = []
    outer = Outer()
    paths = ModulePath({"": outer})
    with paths.followed():
        outer()
    assert seen == ["Outer", "inner", "Outer"] and paths.current == ""


def test_below_a_module_that_no_root_leads_to_its_children_have_paths_from_it() -> None:
    class Inner(torch.nn.Module):
        def forward(self, x: int) -> None:
            seen.append(paths.current)

    seen: list[str] = []
    paths = ModulePath({})
    with paths.followed():
        torch.nn.Sequential(torch.nn.Identity(), torch.nn.Sequential(Inner()))(0)
        Inner()(0)
    assert seen == ["1.0", "Inner"]


def node(index: int, name: str, parent: int | None = None) -> GraphNode:
    return GraphNode(index, NodeKind.KERNEL, name, parent=parent)


def origin(line: int) -> Origin:
    return Origin(Location("serve.py", line))


def lines(graph: CapturedGraph) -> list[int | None]:
    return [n.origin.location.line if n.origin and n.origin.location else None for n in graph.nodes]


def test_origins_of_a_capture_that_agrees() -> None:
    graph = CapturedGraph("4", (node(0, "a"), node(1, "b"), node(2, "a")))
    found = attach(graph, Trace(("a", "b", "a"), (Span(0, 2, origin(1)), Span(2, 3, origin(2)))))
    assert lines(found) == [1, 1, 2] and found.key == "4"


def test_nodes_that_the_traced_capture_does_not_have_get_none() -> None:
    graph = CapturedGraph("", (node(0, "a"), node(1, "fused"), node(2, "b")))
    found = attach(graph, Trace(("a", "gelu", "mul", "b"), tuple(Span(at, at + 1, origin(at)) for at in range(4))))
    assert lines(found) == [0, None, 3]


def test_nodes_inside_a_child_graph_are_their_parents() -> None:
    graph = CapturedGraph("", (node(0, "a"), node(1, "child"), node(2, "x", 1), node(3, "y", 2), node(4, "b")))
    found = attach(graph, Trace(("a", "child", "b"), tuple(Span(at, at + 1, origin(at)) for at in range(3))))
    assert lines(found) == [0, 1, 1, 1, 2]
