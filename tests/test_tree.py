"""Paths to leaves, and rebuilding."""

from __future__ import annotations

import gc
import weakref
from collections import OrderedDict, namedtuple
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import pytest
import torch

from cudagraph_doctor import tree

Pair = namedtuple("Pair", "left right")


class Mode(Enum):
    """A leaf."""

    DECODE = 1


@dataclass(frozen=True)
class Metadata:
    """A frozen dataclass, as attention metadata often is."""

    seq_lens: torch.Tensor
    mode: Mode = Mode.DECODE
    window: int | None = None


class Plain:
    """An object with attributes and no decorator."""

    def __init__(self) -> None:
        self.table = torch.arange(3)
        self.name = "plain"


@dataclass
class Node:
    """For cycles."""

    value: torch.Tensor
    other: Any = field(default=None)


def nested() -> dict[Any, Any]:
    """One of everything."""
    return {
        "meta": Metadata(torch.tensor([1, 2])),
        "caches": [Pair(torch.zeros(1), torch.ones(1)), (torch.ones(2),)],
        3: Plain(),
        "empty": {},
    }


def test_paths_read_like_python() -> None:
    assert list(tree.leaves(nested())) == [
        "meta.seq_lens",
        "meta.mode",
        "meta.window",
        "caches[0].left",
        "caches[0].right",
        "caches[1][0]",
        "[3].table",
        "[3].name",
        "empty",
    ]


def test_a_leaf_alone_has_the_empty_path() -> None:
    assert list(tree.leaves(torch.zeros(2))) == [""]
    assert tree.leaves(None) == {"": None}


def test_enum_is_a_leaf() -> None:
    assert tree.leaves({"mode": Mode.DECODE}) == {"mode": Mode.DECODE}


def test_cycles_end() -> None:
    node = Node(torch.zeros(1))
    node.other = node
    assert list(tree.leaves(node)) == ["value"]


def test_rebuild_keeps_types_and_leaves_the_original_alone() -> None:
    before = nested()
    after = tree.rebuild(before, lambda path, leaf: leaf + 1 if isinstance(leaf, torch.Tensor) else leaf)
    assert isinstance(after["meta"], Metadata) and isinstance(after["caches"][0], Pair) and isinstance(after[3], Plain)
    assert after["meta"].seq_lens.tolist() == [2, 3] and before["meta"].seq_lens.tolist() == [1, 2]
    assert after[3].table.tolist() == [1, 2, 3] and before[3].table.tolist() == [0, 1, 2]


def test_rebuild_of_an_ordered_dict() -> None:
    after = tree.rebuild(OrderedDict(b=1, a=2), lambda path, leaf: (path, leaf))
    assert isinstance(after, OrderedDict) and list(after.items()) == [("b", ("b", 1)), ("a", ("a", 2))]


def test_copies_are_not_rewritten_with_the_original() -> None:
    numpy = pytest.importorskip("numpy")
    before: dict[str, Any] = {"y": torch.zeros(2), "ids": numpy.arange(3), "top": numpy.float32(1.5), "n": 4}
    copied = tree.copies(before)
    before["y"].fill_(7)
    before["ids"][:] = 7
    assert copied["y"].tolist() == [0, 0]
    assert copied["ids"].tolist() == [0, 1, 2] and copied["ids"].dtype is torch.int64
    assert copied["top"].item() == 1.5
    assert copied["n"] == 4


def test_an_array_of_objects_stays_one() -> None:
    numpy = pytest.importorskip("numpy")
    names = numpy.array(["a", "b"])
    assert tree.copies({"names": names})["names"] is names


def test_nothing_is_kept_alive_until_the_garbage_is_collected() -> None:
    """Memory of a step's inputs that stays in use passes for state."""
    leaf = torch.zeros(2)
    gone = weakref.ref(leaf)
    gc.disable()
    try:
        tree.leaves({"a": [leaf]})
        tree.copies({"a": [leaf]})
        tree.rebuild({"a": [leaf]}, lambda path, leaf: leaf)
        del leaf
        assert gone() is None
    finally:
        gc.enable()
