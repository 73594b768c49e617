"""Two captures node by node, on made-up graphs."""

from __future__ import annotations

import struct
import weakref
from dataclasses import replace
from typing import Any

import pytest

from cudagraph_doctor.graph.backend import Edit, LiveGraph
from cudagraph_doctor.graph.model import CapturedGraph, GraphNode, NodeKind, Param, Pointer, Region
from cudagraph_doctor.proof.nodes import address_suspects, baked_remedies, decode, first_unlike, harmful_remedies
from cudagraph_doctor.proof.repair import Cause, Remedy

LIVE = LiveGraph(0, weakref.ref(set()))
OTHER = LiveGraph(1, weakref.ref(set()))


def number(value: int | float, index: int = 0, name: str = "") -> Param:
    """A 4-byte parameter passed by value."""
    return Param(index, name, 0, struct.pack("<f" if isinstance(value, float) else "<i", value))


def pointer(address: int, kind: str, name: str = "", offset: int = 0) -> Param:
    """A parameter that is an address."""
    return Param(0, "", 0, struct.pack("<Q", address), (Pointer(0, address, Region(kind, name, offset)),))


def node(*params: Param, name: str = "add", index: int = 0, **more: Any) -> GraphNode:
    """A kernel."""
    return GraphNode(index, NodeKind.KERNEL, name, grid=(1, 1, 1), params=params, **more)


def graph(*nodes: GraphNode) -> CapturedGraph:
    """Nodes in order."""
    return CapturedGraph("2", tuple(replace(node, index=i) for i, node in enumerate(nodes)))


def baked(old: GraphNode, new: GraphNode) -> list[Remedy]:
    """Remedies for graphs of one node."""
    return baked_remedies([(LIVE, graph(old), graph(new))])


# other launches


def test_the_same_launches() -> None:
    assert first_unlike(graph(node(number(1))), graph(node(number(2)))) is None
    assert first_unlike(graph(), graph()) is None


@pytest.mark.parametrize(
    ("new", "told"),
    [
        (node(name="mul"), "node 1: add then, mul now"),
        (replace(node(), grid=(2, 1, 1)), "node 1: add with grid (1, 1, 1) then, (2, 1, 1) now"),
        (replace(node(), kind=NodeKind.MEMCPY, name="copy"), "node 1: add then, copy now"),
    ],
)
def test_the_first_node_that_differs(new: GraphNode, told: str) -> None:
    unlike = first_unlike(graph(node(), node(), node(name="x")), graph(node(), new, node(name="y")))
    assert unlike is not None and unlike.index == 1 and str(unlike) == told


@pytest.mark.parametrize("field", [{"block": (2, 1, 1)}, {"shared_bytes": 16}])
def test_launch_configurations_count(field: dict[str, Any]) -> None:
    assert first_unlike(graph(node()), graph(replace(node(), **field))) is not None


def test_a_graph_with_more_nodes() -> None:
    longer = first_unlike(graph(node()), graph(node(), node(name="relu")))
    shorter = first_unlike(graph(node(), node(name="relu")), graph(node()))
    assert str(longer) == "node 1: nothing then, relu now" and str(shorter) == "node 1: relu then, nothing now"


def test_nodes_that_one_of_the_graphs_has_in_its_midst_are_held_against_nothing() -> None:
    less = graph(node(), node(name="mul"))
    more = graph(node(), node(name="relu"), node(name="neg"), node(name="mul"))
    assert str(first_unlike(more, less)) == "node 1: relu then, nothing now"
    assert str(first_unlike(less, more)) == "node 1: nothing then, relu now"
    other = graph(node(), node(name="relu"), node(name="exp"))
    assert str(first_unlike(other, less)) == "node 1: relu then, mul now", "what comes behind differs as well"


# by-value parameters


def test_a_number_that_a_capture_now_would_have_otherwise() -> None:
    (remedy,) = baked(node(number(7), number(5, 1, "position")), node(number(7), number(6, 1, "position")))
    assert (remedy.cause, remedy.kind, remedy.name) == (Cause.BAKED, "parameter", "add, parameter 1 (position)")
    assert (remedy.was, remedy.expected) == (5, 6)
    assert remedy.edits == ((LIVE, Edit(0, 1, struct.pack("<i", 6))),)


def test_kernels_are_named_for_people() -> None:
    mangled = "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEEEEvv"
    (remedy,) = baked(node(number(5), name=mangled), node(number(6), name=mangled))
    assert remedy.name == "vectorized_elementwise_kernel<CUDAFunctor_add>, parameter 0"


def test_one_number_in_many_layers_and_graphs_is_one_remedy() -> None:
    old, new = node(number(5)), node(number(6))
    pairs = [(LIVE, graph(old, old), graph(new, new)), (OTHER, graph(old), graph(new))]
    (remedy,) = baked_remedies(pairs)
    assert [(live.ordinal, edit.node) for live, edit in remedy.edits] == [(0, 0), (0, 1), (1, 0)]


def test_other_numbers_and_kernels_are_other_remedies() -> None:
    old = graph(node(number(5)), node(number(5)), node(number(5), name="mul"))
    new = graph(node(number(6)), node(number(7)), node(number(6), name="mul"))
    assert len(baked_remedies([(LIVE, old, new)])) == 3


def test_equal_parameters_and_other_kernels_need_nothing() -> None:
    assert baked(node(number(5)), node(number(5))) == []
    assert baked(node(number(5)), node(number(6), name="mul")) == []
    assert baked(node(number(5)), node(Param(0, "", 0, bytes(8)))) == []  # of another length: not the same parameter
    assert baked(node(number(5), parent=3), node(number(6), parent=3)) == []  # cannot be set in a child graph


def test_values_that_the_backend_knows() -> None:
    old, new = (Param(0, "alpha", 0, bytes(8), value=value) for value in (0.5, "gelu"))
    (remedy,) = baked(node(old), node(new))
    assert (remedy.was, remedy.expected) == (0.5, "gelu")
    assert remedy.edits == ((LIVE, Edit(0, 0, bytes(8), "gelu")),)
    assert baked(node(old), node(replace(old, data=bytes(range(8))))) == []


def test_a_descriptor_has_no_numbers() -> None:
    maps = [bytes(8) + struct.pack("<Q", rows) + bytes(112) for rows in (1, 16)]
    old, new = (Param(0, "", 64, data, is_descriptor=True) for data in maps)
    (remedy,) = baked(node(old), node(new))
    assert (remedy.was, remedy.expected) == ("0100000000000000", "1000000000000000") and remedy.notes["opaque"]
    (remedy,) = baked(*(node(replace(one, is_descriptor=False)) for one in (old, new)))
    assert (remedy.was, remedy.expected) == (1, 16) and not remedy.notes["opaque"]


# addresses


@pytest.mark.parametrize("kind", ["pool", "input", "freed", "unnamed"])
def test_addresses_that_differ_by_right(kind: str) -> None:
    assert baked(node(pointer(0x1000, "root", "a")), node(pointer(0x2000, kind))) == []


@pytest.mark.parametrize("was", [pointer(0x1000, "root", "old"), pointer(0x1000, "unnamed"), pointer(0x1000, "freed")])
def test_an_address_of_the_users_memory_is_told_by_its_name(was: Param) -> None:
    (remedy,) = baked(node(was), node(pointer(0x2000, "weight", "head.weight")))
    assert (remedy.cause, remedy.kind, remedy.name) == (Cause.REBOUND, "weight", "head.weight")
    assert remedy.edits == ((LIVE, Edit(0, 0, struct.pack("<Q", 0x2000))),)
    named = was.pointers[0].region.kind == "root"
    assert (remedy.was, remedy.expected) == (("old", "head.weight") if named else (None, None))


def test_one_tensor_read_in_many_places_is_one_remedy() -> None:
    old, new = node(pointer(0x1000, "unnamed")), node(pointer(0x2000, "root", "table"))
    further = node(pointer(0x2040, "root", "table", 0x40))
    (remedy,) = baked_remedies([(LIVE, graph(old, old), graph(new, further))])
    assert remedy.name == "table" and len(remedy.edits) == 2 and remedy.was is None


def test_a_name_that_has_other_memory_now() -> None:
    assert len(baked(node(pointer(0x1000, "root", "a")), node(pointer(0x2000, "root", "a")))) == 1
    assert baked(node(pointer(0x1000, "root", "a")), node(pointer(0x1000, "root", "a"))) == []


def test_a_number_beside_an_address_of_its_own_pool() -> None:
    def functor(address: int, value: int) -> Param:
        data = struct.pack("<Qi", address, value)
        return Param(0, "", 0, data, (Pointer(0, address, Region("pool", "0", 0)),))

    (remedy,) = baked(node(functor(0x1000, 5)), node(functor(0x2000, 6)))
    assert (remedy.cause, remedy.was, remedy.expected) == (Cause.BAKED, 5, 6)
    assert remedy.edits[0][1].data == struct.pack("<Qi", 0x1000, 6), "the address stays"
    assert baked(node(functor(0x1000, 5)), node(functor(0x2000, 5))) == []


def test_suspects_where_the_old_graph_is_gone() -> None:
    old = graph(node(pointer(0x1000, "unnamed")), node(pointer(0x1000, "root", "a")), node(pointer(0x9000, "pool")))
    new = graph(node(pointer(0x2000, "weight", "w")), node(pointer(0x1000, "root", "a")), node(pointer(0x8000, "pool")))
    assert [(r.name, r.kind, r.cause, r.edits) for r in address_suspects(old, new)] == [
        ("w", "weight", Cause.REBOUND, ())
    ]


def test_no_suspects_among_numbers_and_other_kernels() -> None:
    table = pointer(0x2000, "root", "table")
    assert address_suspects(graph(node(number(1))), graph(node(table))) == []
    assert address_suspects(graph(node(pointer(0x1000, "unnamed"))), graph(node(table, name="mul"))) == []
    moved_within = pointer(0x1040, "root", "table", 0x40)
    assert address_suspects(graph(node(moved_within)), graph(node(replace(moved_within)))) == []


@pytest.mark.parametrize(
    ("now", "cause"),
    [
        (pointer(0x2000, "freed"), Cause.REUSED),
        (pointer(0x2000, "unnamed"), Cause.REUSED),
        (pointer(0x2000, "root", "other"), Cause.REBOUND),
    ],
)
def test_memory_that_only_the_old_graph_reads(now: Param, cause: Cause) -> None:
    old, new = graph(node(pointer(0x1000, "root", "history"))), graph(node(now))
    (remedy,) = harmful_remedies([(LIVE, old, new)])
    assert (remedy.cause, remedy.name) == (cause, "history")
    assert remedy.edits == ((LIVE, Edit(0, 0, struct.pack("<Q", 0x1000))),)


# bytes as numbers


@pytest.mark.parametrize(
    ("old", "new", "at", "values"),
    [
        (struct.pack("<i", 5), struct.pack("<i", 6), 0, (5, 6)),
        (struct.pack("<i", -3), struct.pack("<i", -2), 2, (-3, -2)),
        (struct.pack("<f", 5.0), struct.pack("<f", 0.1), 3, (5.0, 0.1)),
        (struct.pack("<f", 0.0), struct.pack("<f", 0.7), 0, (0.0, 0.7)),  # zero alone would be an integer
        (struct.pack("<2i", 1, 2), struct.pack("<2i", 1, 3), 4, (2, 3)),
        (bytes.fromhex("0000007f"), struct.pack("<i", 5), 0, ("0000007f", "05000000")),  # 1.7e38: nobody writes that
        (bytes(5), bytes(4) + b"\x01", 4, (0, 1)),  # a flag at the end
        (bytes(3), b"\x01\x02\x03", 1, ("000000", "010203")),
    ],
)
def test_a_word_is_read_alike_then_and_now(old: bytes, new: bytes, at: int, values: tuple[object, object]) -> None:
    assert decode(old, new, at) == values
