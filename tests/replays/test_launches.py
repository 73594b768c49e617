"""Which node is which, and which launches differ."""

from __future__ import annotations

from cudagraph_doctor.graph.model import GraphNode, NodeKind
from cudagraph_doctor.replays.candidates import Kind
from cudagraph_doctor.replays.launches import align, differing_launches, unsteady
from cudagraph_doctor.replays.model import Dump


def dump(step: int, *names: str, grid: int = 4, rows: int = 4) -> Dump:
    nodes = tuple(
        GraphNode(index, NodeKind.KERNEL, name, (grid if name == "attend" else 1, 1, 1), (128, 1, 1), 0)
        for index, name in enumerate(names)
    )
    return Dump(0, step, rows, "4", nodes)


def test_equal_lists_go_together_one_by_one() -> None:
    a, b = align([dump(1, "mm", "add", "mm"), dump(2, "mm", "add", "mm")])
    assert [b.nodes[i].index for i in range(3)] == [0, 1, 2] and not a.apart and not b.apart


def test_nodes_behind_an_inserted_one_keep_their_partners() -> None:
    _, b = align([dump(1, "mm", "add", "softmax"), dump(2, "mm", "relu", "add", "softmax")])
    assert {first: node.name for first, node in b.nodes.items()} == {0: "mm", 1: "add", 2: "softmax"}
    assert b.apart == ((1, 1, ("relu",)),)


def test_an_inserted_node() -> None:
    (found,) = differing_launches(align([dump(1, "mm", "add"), dump(2, "mm", "relu", "add"), dump(3, "mm", "add")]))
    assert (found.kind, found.name, found.nodes, found.seen_at) == (Kind.NODES, "relu", (1,), ((1, 4), (2, 4), (3, 4)))
    assert found.parts[0].values == ((), ("relu",), ()) and found.steady


def test_a_missing_and_another_node() -> None:
    (gone,) = differing_launches(align([dump(1, "mm", "relu"), dump(2, "mm")]))
    assert gone.name == "relu" and gone.parts[0].values == (("relu",), ())
    (other,) = differing_launches(align([dump(1, "full_attention", "mm"), dump(2, "window_attention", "mm")]))
    assert other.parts[0].values == (("full_attention",), ("window_attention",))


def test_a_graph_that_launches_nothing_else_has_no_candidates() -> None:
    assert not differing_launches(align([dump(1, "mm"), dump(2, "mm"), dump(1, "mm", rows=3)]))


def test_another_grid() -> None:
    (found,) = differing_launches(align([dump(1, "mm", "attend"), dump(2, "mm", "attend", grid=8)]))
    assert (found.kind, found.name, found.nodes) == (Kind.LAUNCH, "attend", (1,))
    assert [(part.dtype, part.values) for part in found.parts] == [("grid", ((4, 1, 1), (8, 1, 1)))]


def test_captures_that_launch_now_this_now_that_are_told() -> None:
    some = [dump(1, "mm"), dump(2, "mm"), dump(1, "mm", "relu"), dump(2, "mm")]
    assert unsteady(some) == {(1, 4)}
    assert not unsteady(some[:2])
