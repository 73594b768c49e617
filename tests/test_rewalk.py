"""Walking again finds what walking finds, whatever happened to the objects meanwhile."""

from __future__ import annotations

import functools
import gc
import random
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch

from cudagraph_doctor import rewalk
from cudagraph_doctor.rewalk import Rewalk
from cudagraph_doctor.walk import Walk, walk


class Runner:
    """Slots, a dict, a list, a closure, a bound method."""

    __slots__ = ("graph_vars", "made_lazily", "rows", "steps", "views")

    def __init__(self, model: torch.nn.Module) -> None:
        inside = torch.zeros(2)

        def closed() -> torch.Tensor:
            nonlocal inside
            inside = inside + 1
            return inside

        self.graph_vars: Any = {"slot_mapping": torch.zeros(4), 8: torch.ones(1)}
        self.views: Any = [inside[:1], inside[1:], model]
        self.steps: Any = [functools.partial(closed), self.run, (torch.zeros(1), 3)]
        self.rows: Any = 1

    def run(self) -> None:
        """Nothing."""


class Engine:
    """A model, two layers of which are one, and a runner that knows it too."""

    def __init__(self) -> None:
        shared = torch.nn.Linear(2, 2)
        self.model = torch.nn.Sequential(shared, shared, torch.nn.LayerNorm(2))
        self.model.register_buffer("cache", torch.zeros(3))
        self.model._private = torch.zeros(5)
        self.runner = Runner(self.model)
        self.weight = shared.weight
        self.absent: Any = None
        self.shape = torch.zeros(3, 4).shape
        self.largest = torch.zeros(3).max(0)
        self.myself = self


def told(found: Walk) -> Any:
    """All of it, by identity."""
    return (
        [(path, id(tensor)) for path, tensor in found.tensors.items()],
        [(path, id(module)) for path, module in found.modules.items()],
        [*found.aliases.items()],
        found.complete,
    )


def rebound(engine: Engine) -> None:
    engine.runner.graph_vars["slot_mapping"] = torch.ones(4)


def remade(engine: Engine) -> None:
    engine.runner.graph_vars = {"slot_mapping": torch.ones(4), 8: torch.ones(1)}


def counted(engine: Engine) -> None:
    engine.runner.rows += 1


def called(engine: Engine) -> None:
    engine.runner.steps[0]()


def parameter(engine: Engine) -> None:
    engine.model[2].weight = torch.nn.Parameter(torch.zeros(2))


def layer(engine: Engine) -> None:
    engine.model[2] = torch.nn.LayerNorm(2)


def moved(engine: Engine) -> None:
    cast(torch.Tensor, engine.model.cache).data = torch.ones(3)


def replaced_at_one_of_its_paths(engine: Engine) -> None:
    engine.weight = torch.nn.Parameter(torch.zeros(2, 2))


def no_longer_shared(engine: Engine) -> None:
    engine.model[1] = torch.nn.Linear(2, 2)


def shared_from_now_on(engine: Engine) -> None:
    engine.runner.views[0] = engine.runner.views[1]


def exchanged(engine: Engine) -> None:
    views = engine.runner.views
    views[0], views[1] = views[1], views[0]


def made(engine: Engine) -> None:
    engine.absent = torch.zeros(7)


def made_in_a_slot(engine: Engine) -> None:
    setattr(engine.runner, "made_lazily", torch.zeros(7))  # noqa: B010  # a slot is no attribute until it is filled


def dropped(engine: Engine) -> None:
    del engine.runner.graph_vars[8]


def renamed(engine: Engine) -> None:
    engine.runner.graph_vars = {"slots": torch.ones(4), 8: torch.ones(1)}


def appended(engine: Engine) -> None:
    engine.runner.views.append(torch.zeros(1))


def registered(engine: Engine) -> None:
    engine.model[2].register_buffer("scale", torch.zeros(1))


def attached(engine: Engine) -> None:
    engine.model[2].table = torch.zeros(1)


def buffer_made_an_attribute(engine: Engine) -> None:
    del engine.model.cache
    engine.model.__dict__["cache"] = torch.zeros(3)


def made_public(engine: Engine) -> None:
    engine.model.private = engine.model.__dict__.pop("_private")


def given_up(engine: Engine) -> None:
    cast(torch.Tensor, engine.model.cache).untyped_storage().resize_(0)


def without_memory(engine: Engine) -> None:
    engine.runner.graph_vars["slot_mapping"] = torch.zeros(4, device="meta")


def sparse(engine: Engine) -> None:
    engine.runner.graph_vars["slot_mapping"] = torch.eye(2).to_sparse()


def other_container(engine: Engine) -> None:
    engine.runner.views = tuple(engine.runner.views)


def other_function(engine: Engine) -> None:
    other = torch.zeros(1)
    engine.runner.steps[0] = functools.partial(lambda: other)


def unmade(engine: Engine) -> None:
    engine.model = None  # type: ignore[assignment]


SAME_SHAPE = [rebound, remade, counted, called, parameter, layer, moved, exchanged]
OTHER_SHAPE = [
    replaced_at_one_of_its_paths,
    no_longer_shared,
    shared_from_now_on,
    made,
    made_in_a_slot,
    dropped,
    renamed,
    appended,
    registered,
    attached,
    buffer_made_an_attribute,
    made_public,
    given_up,
    without_memory,
    sparse,
    other_container,
    other_function,
    unmade,
]
Change = Callable[[Engine], None]


@pytest.fixture
def walks(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """One for each time that `Rewalk` walks."""
    return counted_calls(monkeypatch, "walk")


def counted_calls(monkeypatch: pytest.MonkeyPatch, name: str) -> list[None]:
    seen, original = list[None](), getattr(rewalk, name)

    def counting(*arguments: Any) -> Any:
        seen.append(None)
        return original(*arguments)

    monkeypatch.setattr(rewalk, name, counting)
    return seen


def found_again(change: Change) -> Engine:
    """An engine that was walked, changed, and walked again: to the same effect as walking."""
    engine, again = Engine(), Rewalk()
    assert told(again({"": engine})) == told(walk({"": engine}))
    change(engine)
    for _ in range(2):
        assert told(again({"": engine})) == told(walk({"": engine}))
    return engine


@pytest.mark.parametrize("change", SAME_SHAPE)
def test_what_hangs_there_by_then_is_found_without_a_walk(change: Change, walks: list[None]) -> None:
    found_again(change)
    assert len(walks) == 1


@pytest.mark.parametrize("change", OTHER_SHAPE)
def test_objects_of_another_shape_are_walked(change: Change, walks: list[None]) -> None:
    found_again(change)
    assert len(walks) >= 2


@pytest.mark.parametrize("seed", range(8))
def test_one_change_after_another(seed: int) -> None:
    draw, engine, again = random.Random(seed), Engine(), Rewalk()
    changes = [change for change in (*SAME_SHAPE, *OTHER_SHAPE) if change not in (unmade, other_container, sparse)]
    for change in draw.choices(changes, k=40):
        try:
            change(engine)
        except (AttributeError, KeyError, RuntimeError):  # an earlier one has taken what it changes
            continue
        assert told(again({"": engine})) == told(walk({"": engine})), change.__name__


def test_there_are_no_host_values() -> None:
    again = Rewalk()
    assert [again({"": Engine()}).scalars for _ in range(2)] == [{}, {}]


def test_roots_come_and_go(walks: list[None]) -> None:
    engine, runner, again = Engine(), Runner(torch.nn.Linear(1, 1)), Rewalk()
    for roots in ({"": engine}, {"": engine, "runner": runner}, {"": engine, "r": runner}, {"": engine, "r": runner}):
        assert told(again(roots)) == told(walk(roots))
    assert len(walks) == 3


def test_a_caller_may_change_what_it_got() -> None:
    engine, again = Engine(), Rewalk()
    again({"": engine})
    for _ in range(2):
        found = again({"": engine})
        assert told(found) == told(walk({"": engine}))
        for part in (found.tensors, found.aliases, found.modules):
            part.clear()


def test_nothing_of_the_users_is_kept() -> None:
    engine, again = Engine(), Rewalk()
    kept = [weakref.ref(engine.runner.graph_vars["slot_mapping"]), weakref.ref(engine.model[2]), weakref.ref(engine)]
    again({"": engine})
    again({"": engine})
    rebound(engine)
    assert kept[0]() is None
    layer(engine)
    assert kept[1]() is None
    del engine
    gc.collect()
    assert kept[2]() is None


def test_objects_of_another_shape_each_time_are_only_walked(monkeypatch: pytest.MonkeyPatch) -> None:
    trails = counted_calls(monkeypatch, "_laid")
    views: list[torch.Tensor] = []
    again = Rewalk()
    for _ in range(8):
        views.append(torch.zeros(1))
        assert told(again({"": views})) == told(walk({"": views}))
    assert len(trails) == 3


def test_a_shape_that_changes_now_and_then_is_followed_on(walks: list[None]) -> None:
    views: list[torch.Tensor] = []
    again = Rewalk()
    for _ in range(5):
        views.append(torch.zeros(1))
        for _ in range(3):
            assert told(again({"": views})) == told(walk({"": views}))
    assert len(walks) == 5


class OwnTables(torch.nn.Module):
    """Keeps its parameters in its own way, as TorchScript's modules do."""

    def __init__(self) -> None:
        super().__init__()
        self.__dict__["_buffers"] = None


def test_modules_that_keep_their_tables_in_their_own_way_are_only_walked(walks: list[None]) -> None:
    roots = {"": {"model": OwnTables(), "x": torch.zeros(1)}}
    again = Rewalk()
    for _ in range(3):
        assert told(again(roots)) == told(walk(roots))
    assert len(walks) == 3


def test_a_module_that_begins_to_is_walked(walks: list[None]) -> None:
    model = torch.nn.LayerNorm(2)
    again = Rewalk()
    again({"": model})
    model.__dict__["_parameters"] = OrderedDictLike(model._parameters)
    assert told(again({"": model})) == told(walk({"": model}))
    assert len(walks) == 2


class OrderedDictLike:
    """Has items and is no dict."""

    def __init__(self, items: dict[str, Any]) -> None:
        self._items = OrderedDict(items)

    def items(self) -> Any:
        """As a dict's."""
        return self._items.items()


def test_a_walk_that_gives_up_lays_no_trail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cudagraph_doctor.walk.MAX_OBJECTS", 3)
    again = Rewalk()
    assert [again({"": [[1], [2], [3], [4]]}).complete for _ in range(2)] == [False, False]
