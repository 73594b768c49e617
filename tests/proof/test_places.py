"""Lines of the user's code: where he stages, captures, launches."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from cudagraph_doctor.errors import Inconclusive
from cudagraph_doctor.findings import Location
from cudagraph_doctor.graph import origins
from cudagraph_doctor.graph.emulated import EmulatedBackend
from cudagraph_doctor.graph.model import CapturedGraph, GraphNode
from cudagraph_doctor.proof import places
from cudagraph_doctor.proof.arms import Arms
from cudagraph_doctor.proof.reading import regions_of
from cudagraph_doctor.proof.subject import Planned

Make = Callable[..., Any]


class Loop:
    """With the members that are looked for."""

    graphed: Any = None

    def update(self) -> None:
        """Stage."""

    def forward(self) -> None:
        """Step."""


class Engine:
    """With one of them."""

    def step(self) -> None:
        """Step."""


def wrapper(function: Any) -> Any:
    """A decorator as users write them."""

    @functools.wraps(function)
    def wrapped(*args: Any) -> Any:
        return function(*args)

    return wrapped


@wrapper
def decorated() -> None:
    """Inside a wrapper."""


def line_of(function: Any) -> int:
    """Where it is defined."""
    number: int = function.__code__.co_firstlineno
    return number


def test_staging_is_where_the_inputs_are_refreshed() -> None:
    place = places.staging(Loop())
    assert place is not None
    assert (place.file, place.line, place.role) == (__file__, line_of(Loop.update), "staged")
    assert (place.function, place.code) == ("Loop.update", "def update(self) -> None:")
    assert places.staging(Engine()).function == "Engine.step"  # type: ignore[union-attr]


def test_a_runner_of_its_own_comes_first_and_a_member_set_to_none_is_not_there() -> None:
    loop = Loop()
    loop.graphed = lambda: None
    assert places.staging(loop).line == line_of(loop.graphed)  # type: ignore[union-attr]
    loop.graphed = loop.update = None  # type: ignore[method-assign, assignment]
    assert places.staging(loop).function == "Loop.forward"  # type: ignore[union-attr]
    assert places.staging(object()) is None


def test_a_decorated_function_is_where_it_was_written() -> None:
    assert places.definition(decorated).line == line_of(decorated.__wrapped__)  # type: ignore[union-attr]


def test_what_has_no_source_is_nowhere() -> None:
    names: dict[str, Any] = {}
    exec("def made(): pass", names)
    for thing in (len, functools.partial(decorated), names["made"], None, 3):
        assert places.definition(thing) is None


STAGED, CAPTURED = Location("a.py", 1, role="staged"), Location("a.py", 2, role="captured")
REPLAYED, STEP, LINE = Location("a.py", 3, role="replayed"), Location("a.py", 4, role="captured"), Location("a.py", 5)


@pytest.mark.parametrize(
    ("staging", "line", "in_staging", "told"),
    [
        (STAGED, None, True, (STAGED, (CAPTURED,))),
        (STAGED, None, False, (CAPTURED, ())),
        (STAGED, LINE, False, (LINE, (CAPTURED,))),
        (REPLAYED, LINE, False, (LINE, (CAPTURED, REPLAYED))),
        (REPLAYED, None, False, (CAPTURED, (REPLAYED,))),
        (None, None, True, (CAPTURED, ())),
    ],
)
def test_staging_is_told_where_it_may_be_at_fault_and_the_users_replay_always(
    staging: Location | None, line: Location | None, in_staging: bool, told: tuple[Any, Any]
) -> None:
    assert places.Places(staging, CAPTURED, step=STEP).told(line, in_staging) == told


def test_what_the_doctor_captures_stands_in_for_a_line_that_captures(loop_target: Make, arms_of: Make) -> None:
    where = places.around(loop_target(), *opened(arms_of(loop_target(), 2)))
    location, related = where.told(None, in_staging=False)
    assert location is not None and not related
    assert (location.function, location.role) == ("TinyLoop.forward", "captured")


# graphs


def opened(made: tuple[Arms, list[Planned]]) -> tuple[Arms, Planned]:
    """Arms after the replay of their last step."""
    arms, plan = made
    arms.save()
    arms.subject.replayed(plan[-1])
    return arms, plan[-1]


def node_of(arms: Arms, at: Planned, word: str) -> tuple[CapturedGraph, GraphNode]:
    """The step's graph, and its last node with this word in its name."""
    (held,) = arms.subject.held(at)
    graph = arms.backend.read(held.live, regions_of(held, set()))
    return graph, [node for node in graph.nodes if word in node.name.lower()][-1]


def test_the_line_that_opened_the_capture(engine_target: Make, arms_of: Make) -> None:
    arms, at = opened(arms_of(engine_target(), 2))
    place = places.captured(arms, at)
    assert place is not None and place.role == "captured" and place.file.endswith("conftest.py")
    assert place.code == "with torch.cuda.graph(graph):"


def test_a_capture_by_the_doctor_itself_is_no_line_of_the_user(loop_target: Make, arms_of: Make) -> None:
    assert places.captured(*opened(arms_of(loop_target(), 2))) is None


def test_no_graph_no_line(loop_target: Make, arms_of: Make) -> None:
    arms, plan = arms_of(loop_target(), 2)
    assert places.captured(arms, Planned(0, 0, 4, 4)) is None and plan


def test_who_launched_a_node(loop_target: Make, arms_of: Make) -> None:
    arms, at = opened(arms_of(loop_target(), 2))
    origin = places.launched(arms, at, *node_of(arms, at, "mul"))
    assert origin is not None and "mul" in origin.operator
    assert origin.location is not None and "* self.weight" in origin.location.code
    assert arms.subject.held(at, fresh=True) == []


@pytest.mark.parametrize("backend", ["emulated"], indirect=True)
def test_nodes_that_do_not_tell_are_looked_up_in_another_capture(
    loop_target: Make, arms_of: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = loop_target()
    arms, at = opened(arms_of(target, 2))
    graph, node = node_of(arms, at, "mul")
    silent = replace(graph, nodes=tuple(replace(one, origin=None) for one in graph.nodes))
    node = silent.nodes[node.index]
    seen = []

    def trace_origins(capture: Callable[[], object], modules: Any) -> list[str]:
        seen.append(target.cache.eq(0).all())
        capture()
        seen.append(bool(arms.subject.held(at, fresh=True)))
        return ["of another graph", "of this one"]

    monkeypatch.setattr(arms.backend, "trace_origins", trace_origins)
    monkeypatch.setattr(origins, "attach", lambda _, trace: graph if trace == "of this one" else silent)
    target.cache.fill_(1)
    assert places.launched(arms, at, silent, node) == graph.nodes[node.index].origin is not None
    assert seen == [True, True], "captured from the saved state"
    assert arms.subject.held(at, fresh=True) == []
    arms.subject.to_recapture = "add it"
    assert places.launched(arms, at, silent, node) is None and len(seen) == 2


@pytest.mark.gpu
@pytest.mark.parametrize("backend", ["cuda"], indirect=True)
def test_a_real_node_is_looked_up_in_another_capture(loop_target: Make, arms_of: Make) -> None:
    arms, at = opened(arms_of(loop_target(), 2))
    graph, node = node_of(arms, at, "mul")
    assert node.origin is None
    arms.subject.to_recapture = "add it"
    assert places.launched(arms, at, graph, node) is None
    arms.subject.to_recapture = ""
    assert places.launched(arms, at, graph, node) is not None


@pytest.mark.gpu
@pytest.mark.parametrize("backend", ["cuda"], indirect=True)
def test_a_capture_that_fails_leaves_it_untold(loop_target: Make, arms_of: Make) -> None:
    arms, at = opened(arms_of(loop_target(), 2))
    graph, node = node_of(arms, at, "mul")

    def recapture(at: Planned) -> None:
        raise Inconclusive("no", fix="none")

    arms.subject.recapture = recapture  # type: ignore[method-assign]
    assert places.launched(arms, at, graph, node) is None
    assert torch.cuda.current_stream() == torch.cuda.default_stream()


RUNNER = """
import torch

class Engine:
    def __init__(self):
        self.x = torch.zeros(2, device="cpu:0")
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.y = self.x + 1

    def go(self):
        self.graph.replay()
"""


def test_the_line_that_replays_is_the_users(tmp_path: Path) -> None:
    file = tmp_path / "engine.py"
    file.write_text(RUNNER)
    backend = EmulatedBackend()
    with backend.installed():
        module: dict[str, Any] = {"__name__": "engine"}
        exec(compile(RUNNER, str(file), "exec"), module)
        engine = module["Engine"]()
        [live] = backend.log.graphs
        assert live.replayed_at is None
        engine.go()
        again = live.replayed_at
        engine.graph.replay()
    assert again is not None
    assert (again.file, again.line, again.function, again.code) == (str(file), 12, "go", "self.graph.replay()")
    assert live.replayed_at == again  # the first one, found once
    arms: Any = SimpleNamespace(subject=SimpleNamespace(form="engine", held=lambda at: [SimpleNamespace(live=live)]))
    at: Any = None
    place = places.replayed(arms, at)
    assert place is not None and place.role == "replayed"
    assert places.around(Engine(), arms, at).staging == place
    arms.subject.held = lambda at: []
    assert places.around(Engine(), arms, at).staging == places.staging(Engine())
