"""Captures seen from outside: opened, closed, nested, left open, and made into nothing in the dry run."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch

from cudagraph_doctor.graph.illegal import Kind
from cudagraph_doctor.observation.records import Site

DEVICE = "cpu:0"


def test_the_dry_run_runs_the_body_and_captures_nothing(rig: Any) -> None:
    x = torch.zeros(2, device=DEVICE)
    capturing: list[bool] = []
    with rig.hooks(dry=True) as session:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            x.add_(1)
            capturing.append(torch.cuda.is_current_stream_capturing())
            with torch.cuda.stream(torch.cuda.default_stream()):
                capturing.append(torch.cuda.is_current_stream_capturing())
        capturing.append(torch.cuda.is_current_stream_capturing())
        graph.replay()
        assert graph.pool() == graph.pool()
    assert capturing == [True, False, False]
    assert x.tolist() == [1, 1] and rig.backend.log.graphs == [] and len(session.windows) == 1
    assert session.windows[0].opened_at and "with torch.cuda.graph(graph)" in session.windows[0].opened_at.code


def test_a_real_capture_is_made_and_its_graph_never_replayed(rig: Any) -> None:
    x = torch.zeros(2, device=DEVICE)
    with rig.hooks(dry=False) as session:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="relaxed"):
            x.add_(1)
        graph.replay()
    assert x.tolist() == [0, 0] and len(rig.backend.log.graphs) == 1
    assert session.windows[0].error_mode == "relaxed"
    graph.replay()  # the hooks are out
    assert x.tolist() == [1, 1]


def test_graphs_from_before_are_replayed(rig: Any) -> None:
    x = torch.zeros(2, device=DEVICE)
    older = torch.cuda.CUDAGraph()
    with torch.cuda.graph(older):
        x.add_(1)
    with rig.hooks(dry=True):
        older.replay()
    assert x.tolist() == [1, 1]


def test_the_error_mode_can_be_chosen_for_the_target(rig: Any) -> None:
    with rig.hooks(dry=False, error_mode="thread_local") as session, torch.cuda.graph(torch.cuda.CUDAGraph()):
        pass
    assert session.windows[0].error_mode == "thread_local"


def nested() -> torch.cuda.CUDAGraph:
    inner = torch.cuda.CUDAGraph()
    with torch.cuda.graph(inner):
        torch.zeros(2, device=DEVICE).add_(1)
    return inner


def by_hand() -> None:
    inner = torch.cuda.CUDAGraph()
    inner.capture_begin()
    torch.zeros(2, device=DEVICE).add_(1)
    inner.capture_end()
    inner.replay()


def test_a_nested_capture_is_one_operation_of_the_outer_one(rig: Any) -> None:
    session = rig.dry(nested)
    [(site, [operation])] = session.candidates.items()
    assert (site.name, operation.kind) == ("torch.cuda.graph", Kind.NESTED_CAPTURE) and len(session.windows) == 1
    failed, error = rig.capture(nested)
    assert error is not None and failed.culprit(None).site.name == "torch.cuda.graph"
    served, error = rig.capture(nested, (site,))
    assert error is None and served.gave == 1
    assert [live.nodes for live in rig.backend.log.graphs] == [2]  # the inner body went into the outer graph


def test_a_nested_capture_by_hand(rig: Any) -> None:
    session = rig.dry(by_hand)
    # to replay what was to be captured inside is no fault of its own
    assert [site.name for site in session.candidates] == ["CUDAGraph.capture_begin"]
    _, error = rig.capture(by_hand)
    assert error is not None
    _, error = rig.capture(by_hand, tuple(session.candidates))
    assert error is None


def test_dropping_a_graph_inside_a_capture(rig: Any) -> None:
    older = torch.cuda.CUDAGraph()
    with torch.cuda.graph(older):
        torch.zeros(2, device=DEVICE).add_(1)
    [[operation]] = rig.dry(lambda: older.reset()).candidates.values()
    assert (operation.name, operation.kind) == ("CUDAGraph.reset", Kind.DESTROYED_GRAPH)


def test_a_capture_that_is_left_open_is_ended(rig: Any) -> None:
    with rig.hooks(dry=False) as session:
        torch.cuda.set_stream(torch.cuda.Stream())
        torch.cuda.CUDAGraph().capture_begin()
    assert session.window is None
    _, error = rig.capture(lambda: torch.zeros(2, device=DEVICE).add_(1))
    assert error is None


def test_a_capture_that_cannot_begin(rig: Any) -> None:
    with rig.hooks(dry=False) as session:
        with pytest.raises(RuntimeError, match="non-default stream"):
            torch.cuda.CUDAGraph().capture_begin()
        assert session.window is None


def test_generators_that_are_registered_are_known(rig: Any) -> None:
    generator = torch.Generator(DEVICE)
    with rig.hooks(dry=True) as session:
        assert not session.is_registered(generator)
        torch.cuda.CUDAGraph().register_generator_state(generator)
        assert session.is_registered(generator)
        assert session.is_registered(torch.cuda.default_generators[0])


def test_who_has_the_question_by_name_is_answered_too(rig: Any) -> None:
    ask = torch.cuda.is_current_stream_capturing  # as after `from torch.cuda import is_current_stream_capturing`
    answers: list[bool] = []
    rig.dry(lambda: answers.append(ask()))
    rig.capture(lambda: answers.append(ask()))
    assert answers == [True, True] and not ask()


class Held:
    def __init__(self) -> None:
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            torch.zeros(1, device=DEVICE).add_(1)
        self.itself = self


def test_a_graph_that_ends_inside_a_capture_is_noted_with_the_line(rig: Any) -> None:
    for collect, code in ((gc.collect, "gc.collect()"), (lambda: None, "")):
        held: list[Any] = [Held()]

        def body(held: list[Any] = held, collect: Any = collect) -> None:
            held.clear()
            collect()

        session = rig.dry(body)
        named = [operation for operations in session.candidates.values() for operation in operations]
        assert [operation.kind for operation in named] == ([Kind.DESTROYED_GRAPH] if code else [])
        assert not named or named[0].location.code == "collect()"
    gc.collect()


def test_a_graph_that_ends_and_breaks_the_capture_is_the_culprit(rig: Any) -> None:
    x, held = torch.zeros(1, device=DEVICE), [torch.cuda.CUDAGraph()]
    with torch.cuda.graph(held[0]):
        x.add_(1)

    def body() -> None:
        held.clear()
        rig.backend._device.capture.fail(900, "as CUDA would")
        x.add_(1)

    session, error = rig.capture(body)
    assert error is not None
    culprit = session.culprit(None)
    assert culprit.operation.kind is Kind.DESTROYED_GRAPH and culprit.operation.location.code == "held.clear()"


def test_older_graphs_are_kept_once_it_is_known_that_one_ends_inside(rig: Any) -> None:
    x, held, alive = torch.zeros(1, device=DEVICE), [], []

    def older() -> weakref.ref[Any]:
        held.append(torch.cuda.CUDAGraph())
        with torch.cuda.graph(held[0]):
            x.add_(1)
        return weakref.ref(held[0])

    def body(graph: weakref.ref[Any]) -> None:
        held.clear()
        alive.append(graph() is not None)

    graph = older()
    [site] = rig.dry(lambda: body(graph)).candidates
    graph = older()
    session, error = rig.capture(lambda: body(graph), (Site(site.name, ()),))
    assert error is None and alive == [False, True] and session.failures == []
    assert graph() is None  # afterwards nobody keeps it


@pytest.mark.parametrize("method", ["capture_begin", "capture_end", "register_generator_state"])
def test_what_torch_itself_does_when_captures_begin_and_end_is_not_the_users(
    rig: Any, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """Measured on an H200, torch 2.11: two `fill_` for each capture, which no captured stream gets."""
    seed = torch.zeros(1, device=DEVICE)
    own = getattr(torch.cuda.CUDAGraph, method)

    def as_torch_does(graph: Any, *args: Any, **kwargs: Any) -> None:
        before = torch.cuda.current_stream()
        torch.cuda.set_stream(torch.cuda.default_stream())
        seed.fill_(7)
        torch.cuda.set_stream(before)
        own(graph, *args, **kwargs)

    monkeypatch.setattr(torch.cuda.CUDAGraph, method, as_torch_does)

    def capture() -> None:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            if method == "register_generator_state":
                graph.register_generator_state(torch.cuda.default_generators[0])
            seed.add_(1)

    with rig.hooks(dry=False) as session:
        capture()
    assert session.outside == [] and session.failures == []
    assert session.windows[0].launches == 1
