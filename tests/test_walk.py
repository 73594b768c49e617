"""Names of the tensors and host values that a user's objects hold."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from cudagraph_doctor import walk as walking
from cudagraph_doctor.walk import follow, walk


class Runner:
    """Slots, a dict, a closure, a partial, a property that must not be read."""

    __slots__ = ("graph_vars", "hidden", "step")

    def __init__(self) -> None:
        self.graph_vars = {"slot_mapping": torch.zeros(4), 8: torch.ones(1)}
        self.step = 0
        inside = torch.zeros(2)

        def closed() -> torch.Tensor:
            return inside

        self.hidden: Callable[[], torch.Tensor] = functools.partial(closed)

    @property
    def costly(self) -> None:
        """Reading it would run the user's code."""
        raise AssertionError("a property was read")


class Engine:
    """A module inside an object."""

    def __init__(self) -> None:
        self.model = torch.nn.Sequential(torch.nn.Linear(2, 2))
        self.model.register_buffer("cache", torch.zeros(3))
        self.runner = Runner()
        self.myself = self


def test_names_are_attribute_paths() -> None:
    found = walk({"": Engine()})
    assert set(found.tensors) == {
        "model.0.weight",
        "model.0.bias",
        "model.cache",
        "runner.graph_vars.slot_mapping",
        "runner.graph_vars.8",
        "runner.hidden.func.inside",
    }
    assert found.scalars["runner.step"] == 0
    assert list(found.modules) == ["model"]


def test_a_named_root_starts_the_path() -> None:
    assert next(iter(walk({"runner": Runner()}).tensors)) == "runner.graph_vars.slot_mapping"


def test_other_paths_that_lead_to_a_tensor_are_kept() -> None:
    class Model:
        def __init__(self) -> None:
            self.head = {"weight": torch.zeros(2)}
            self.first = self.head["weight"]
            self.same = self.head
            self.me = self

    model = Model()
    found = walk({"": model})
    assert list(found.tensors) == ["first"]
    assert set(found.paths) == {"first", "head.weight"} and found.complete
    assert found.aliases == {"same": "head", "me": "", "head.weight": "first"}
    for path in ("first", "head.weight", "same.weight", "me.first", "me.me.same.weight"):
        assert found.find(path) is model.first, path
    for path in ("", "head", "second", "same.bias", "me", "first.x", "firsts"):
        assert found.find(path) is None, path


def test_a_bound_method_leads_to_its_object() -> None:
    class Loop:
        def __init__(self) -> None:
            self.buffer = torch.zeros(1)

        def run(self) -> None:
            pass

    assert list(walk({"": Loop().run}).tensors) == ["buffer"]


def test_a_walk_that_gives_up_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walking, "MAX_OBJECTS", 3)
    assert not walk({"": [[1], [2], [3], [4]]}).complete
    assert walk({"": [[1]]}).complete


class Wrapper(torch.Tensor):
    """A tensor around another one, as DTensor and quantised tensors are."""

    __slots__ = ("inside",)
    __module__ = "torch.distributed.tensor"  # DTensor's
    inside: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Wrapper:
        made: Wrapper = torch.Tensor._make_wrapper_subclass(cls, inner.shape)
        made.inside = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, *_: object, **__: object) -> None:
        raise AssertionError("an operator was called")


def test_tensors_without_memory_are_not_listed() -> None:
    meta, sparse, empty = torch.zeros(2, device="meta"), torch.eye(2).to_sparse(), torch.zeros(0)
    assert list(walk({"": {"meta": meta, "sparse": sparse, "empty": empty}}).tensors) == ["empty"]


def test_of_a_wrapper_the_tensor_inside_is_named() -> None:
    inner = torch.zeros(2)
    assert walk({"": {"weight": Wrapper(inner)}}).tensors == {"weight.inside": inner}


def test_a_path_is_followed_to_where_it_leads_now() -> None:
    class Step:
        """Holds tensors in all the ways there are."""

        __slots__ = ("kept", "model", "table")

        def run(self) -> None:
            pass

    step: Any = Step()
    inner = torch.zeros(3)
    step.model, step.kept = torch.nn.ModuleList([torch.nn.Linear(2, 2)]), {"a": [torch.zeros(1)], 4: torch.zeros(2)}
    step.table = {"wrapped": Wrapper(inner), "made": lambda: inner, "number": 3}
    seen = walk({"": step.run})
    assert {*seen.paths} >= {"model.0.weight", "kept.a[0]", "kept.4", "table.wrapped.inside", "table.made.inner"}
    roots = {"": step.run, "runner": functools.partial(print, step.kept)}
    for path, tensor in seen.paths.items():
        assert follow(roots, path) is tensor
    step.kept["a"][0] = other = torch.ones(1)
    assert follow(roots, "kept.a[0]") is other and follow(roots, "runner.args[0].a[0]") is other
    for path in ("kept.a", "kept.a[1]", "kept.ab", "table.number", "kept.4.data", ""):
        assert follow(roots, path) is None
