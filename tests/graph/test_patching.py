"""Setting and putting back parameters of a made-up executable graph."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import pytest

from cudagraph_doctor.errors import Inconclusive
from cudagraph_doctor.graph.backend import Edit
from cudagraph_doctor.graph.nodes import place
from cudagraph_doctor.graph.patching import Patches


def word(number: int) -> bytes:
    return struct.pack("<Q", number)


def patches(graph: int) -> Patches:
    return Patches(place(graph)[0], lambda: 1)


@pytest.mark.parametrize("packed", [False, True])
def test_a_kernels_parameter_is_set_and_put_back(made_up: Any, packed: bool) -> None:
    node = made_up.kernel(b"abcd", b"efgh", b"ijkl", packed=packed)
    with patches(made_up.graph(node)).applied([Edit(0, 1, b"EFGH"), Edit(0, 2, b"IJKL")]):
        assert made_up.executed[node] == [b"abcd", b"EFGH", b"IJKL"]
    assert made_up.executed[node] == [b"abcd", b"efgh", b"ijkl"]


def test_blocks_nest(made_up: Any) -> None:
    node = made_up.kernel(b"abcd", b"efgh")
    found = patches(made_up.graph(node))
    with found.applied([Edit(0, 0, b"ABCD")]):
        with found.applied([Edit(0, 1, b"EFGH")]):
            assert made_up.executed[node] == [b"ABCD", b"EFGH"]
        with found.applied([Edit(0, 0, b"....")]):
            assert made_up.executed[node] == [b"....", b"efgh"]
        assert made_up.executed[node] == [b"ABCD", b"efgh"]
    assert made_up.executed[node] == [b"abcd", b"efgh"]


def test_put_back_after_a_failure_in_the_block(made_up: Any) -> None:
    node = made_up.kernel(b"abcd")
    with pytest.raises(KeyError), patches(made_up.graph(node)).applied([Edit(0, 0, b"ABCD")]):
        raise KeyError("in the replay")
    assert made_up.executed[node] == [b"abcd"]


def test_copies_and_fills(made_up: Any) -> None:
    copy = {f"{side}{name}": 0 for side in ("src", "dst") for name in ("Host", "Pitch", "XInBytes", "Y", "Z")}
    copy |= {"srcMemoryType": 2, "dstMemoryType": 1, "srcDevice": 100, "dstDevice": 0, "dstHost": 200}
    copy |= {"WidthInBytes": 64, "Height": 1, "Depth": 1}
    fill = {"dst": 100, "value": 7, "elementSize": 1, "width": 64, "height": 1, "pitch": 0}
    first, second = made_up.node(1, SimpleNamespace(**copy)), made_up.node(2, SimpleNamespace(**fill))
    edits = [Edit(0, 0, word(300)), Edit(0, 1, word(400)), Edit(1, 1, word(9))]
    with patches(made_up.graph(first, second)).applied(edits):
        assert made_up.executed[first] == copy | {"dstHost": 300, "srcDevice": 400}
        assert made_up.executed[second] == fill | {"value": 9}
    assert made_up.executed == {first: copy, second: fill}


def test_what_the_driver_refuses_is_inconclusive_and_undone(made_up: Any) -> None:
    copy = {f"{side}{name}": 0 for side in ("src", "dst") for name in ("Host", "Device", "Pitch", "XInBytes", "Y", "Z")}
    copy |= {"srcMemoryType": 2, "dstMemoryType": 2, "WidthInBytes": 64, "Height": 2, "Depth": 1}
    kernel, pitched = made_up.kernel(b"abcd"), made_up.node(1, SimpleNamespace(**copy))
    found = patches(made_up.graph(kernel, pitched))
    with (
        pytest.raises(Inconclusive, match=r"node 1 \(memcpy\) cannot be patched.*\n.*cuGraphExecMemcpyNodeSetParams"),
        found.applied([Edit(0, 0, b"ABCD"), Edit(1, 0, word(1))]),
    ):
        pytest.fail("patched")
    assert made_up.executed == {kernel: [b"abcd"]}


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (Edit(0, 0, b"abc"), "parameter 0 has 4 bytes, not 3"),
        (Edit(0, 3, b"abcd"), "has 1 parameters, none with index 3"),
        (Edit(1, 0, b""), "event record nodes are not patched"),
        (Edit(3, 0, b"abcd"), "inside a child"),
        (Edit(9, 0, b"abcd"), "no node 9"),
    ],
)
def test_edits_that_cannot_be_made(made_up: Any, edit: Edit, words: str) -> None:
    child = made_up.node(4, made_up.graph(made_up.kernel(b"abcd")))
    found = patches(made_up.graph(made_up.kernel(b"abcd"), made_up.node(7, 42), child))
    with pytest.raises(Inconclusive, match=words), found.applied([edit]):
        pytest.fail("patched")
    assert made_up.executed == {}


def test_a_graph_that_is_not_instantiated(made_up: Any) -> None:
    found = Patches(place(made_up.graph(made_up.kernel(b"abcd")))[0], lambda: None)
    with pytest.raises(Inconclusive, match="not instantiated"), found.applied([Edit(0, 0, b"ABCD")]):
        pytest.fail("patched")


def test_a_graph_that_goes_inside_the_block_is_left_alone(made_up: Any) -> None:
    node, alive = made_up.kernel(b"abcd"), [1]
    found = Patches(place(made_up.graph(node))[0], lambda: alive[0] if alive else None)
    with found.applied([Edit(0, 0, b"ABCD")]):
        alive.clear()
    assert made_up.executed[node] == [b"ABCD"]
