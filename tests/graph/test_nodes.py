"""Placing and reading nodes of made-up graphs, above all those that cannot be read."""

from __future__ import annotations

import gc
import struct
from types import SimpleNamespace
from typing import Any

import pytest

from cudagraph_doctor.graph import driver
from cudagraph_doctor.graph.addresses import Addresses
from cudagraph_doctor.graph.model import GraphNode, NodeKind
from cudagraph_doctor.graph.nodes import Reader, kernel_names, place
from cudagraph_doctor.graph.regions import NamedRange, Regions

X, Y = 0x7F0000000000, 0x7F0000100000


def copy(**fields: Any) -> SimpleNamespace:
    """A copy of 64 bytes from X to Y on the device."""
    device = {f"{side}{name}": value for side, at in (("src", X), ("dst", Y)) for name, value in sides(at).items()}
    return SimpleNamespace(**{**device, "WidthInBytes": 64, "Height": 1, "Depth": 1, **fields})


def sides(address: int) -> dict[str, int]:
    return {"MemoryType": 2, "Device": address, "Host": 0, "Pitch": 0, "XInBytes": 0, "Y": 0, "Z": 0}


def fill(**fields: int) -> SimpleNamespace:
    return SimpleNamespace(**{"dst": X, "value": 7, "elementSize": 1, "width": 64, "height": 1, "pitch": 0, **fields})


def read(graph: int) -> tuple[GraphNode, ...]:
    def ask(address: int) -> driver.Allocation | None:
        return driver.Allocation(False, X, 1 << 24) if X <= address < X + (1 << 24) else None

    regions = Regions([NamedRange("input", "x", X, 4096), NamedRange("input", "y", Y, 4096)])
    placed, _ = place(graph)
    return Reader(Addresses(regions, [], "", [], ask), 9).read(placed)


def texts(node: GraphNode) -> list[str]:
    return [f"{param.name} {pointer.region}" for param in node.params for pointer in param.pointers]


def test_children_follow_their_parent_and_edges_are_numbered_so(made_up: Any) -> None:
    inside = [made_up.node(5), made_up.node(5)]
    child = made_up.node(4, made_up.graph(*inside, edges=[(inside[0], inside[1])]))
    outside = [made_up.node(5), child, made_up.node(5)]
    placed, edges = place(made_up.graph(*outside, edges=[(outside[0], child), (child, outside[2])]))
    assert [(node.index, node.handle, node.parent) for node in placed] == [
        (0, outside[0], None),
        (1, child, None),
        (2, inside[0], 1),
        (3, inside[1], 1),
        (4, outside[2], None),
    ]
    assert set(edges) == {(0, 1), (1, 4), (2, 3)}
    assert place(made_up.graph()) == ([], [])


@pytest.mark.parametrize("packed", [False, True])
def test_kernel_parameters_in_both_forms(made_up: Any, packed: bool) -> None:
    data = (struct.pack("<QQ", X + 8, 3), struct.pack("<f", 2.5), struct.pack("<I", 0))
    (node,) = read(made_up.graph(made_up.kernel(*data, packed=packed)))
    assert [(param.index, param.offset, param.data) for param in node.params] == [
        (0, 0, data[0]),
        (1, 16, data[1]),
        (2, 20, data[2]),
    ]
    assert (node.name, node.grid, node.block, node.shared_bytes) == ("kernel_100", (1, 1, 1), (1, 1, 1), 0)
    assert texts(node) == [' input "x" + 8'] and not node.unreadable


def test_a_kernel_without_parameters_is_readable(made_up: Any) -> None:
    (node,) = read(made_up.graph(made_up.kernel()))
    assert node.params == () and not node.unreadable


def test_a_node_may_carry_a_kernel_in_place_of_a_function(made_up: Any) -> None:
    (node,) = read(made_up.graph(made_up.kernel(b"abcd", function=9, func=0, kern=9)))
    assert node.name == "kernel_9" and node.params[0].data == b"abcd"


def test_a_function_that_the_driver_does_not_know(made_up: Any) -> None:
    unknown, known = made_up.kernel(b"abcd", func=77), made_up.kernel(b"abcd")
    first, second = read(made_up.graph(unknown, known))
    assert "INVALID_HANDLE" in first.unreadable or "cuFuncGetName" in first.unreadable
    assert first.grid == (1, 1, 1) and first.params == () and second.params


def test_arguments_that_the_driver_does_not_give(made_up: Any) -> None:
    (node,) = read(made_up.graph(made_up.kernel(b"abcd", kernelParams=0)))
    assert node.name == "kernel_100" and "does not give" in node.unreadable


def test_a_driver_too_old_to_tell_parameters(made_up: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(function: int, index: int) -> None:
        raise RuntimeError('Function "cuFuncGetParamInfo" not found')

    monkeypatch.setattr(made_up, "cuFuncGetParamInfo", missing)
    (node,) = read(made_up.graph(made_up.kernel(b"abcd")))
    assert "not found" in node.unreadable and node.name == "kernel_100"


def test_copies(made_up: Any) -> None:
    pageable = copy(srcMemoryType=1, srcHost=0x55)
    flat, upload, pitched = read(made_up.graph(*(made_up.node(1, p) for p in (copy(), pageable, copy(Height=2)))))
    assert texts(flat) == ['dst input "y"', 'src input "x"']
    assert [param.name for param in flat.params] == ["dst", "src", "width_bytes", "height", "depth"]
    assert texts(upload) == ['dst input "y"', "src pageable"]
    assert [param.name for param in pitched.params[-2:]] == ["dst_pitch", "src_pitch"]


@pytest.mark.parametrize(
    ("fields", "reason"), [({"srcMemoryType": 3}, "CUDA arrays are not read"), ({"dstXInBytes": 4}, "part of a CUDA")]
)
def test_copies_that_are_not_read(made_up: Any, fields: dict[str, int], reason: str) -> None:
    (node,) = read(made_up.graph(made_up.node(1, copy(**fields))))
    assert reason in node.unreadable and node.kind is NodeKind.MEMCPY


def test_fills(made_up: Any) -> None:
    flat, pitched = read(made_up.graph(made_up.node(2, fill()), made_up.node(2, fill(height=3, pitch=128))))
    assert texts(flat) == ['dst input "x"']
    assert [int.from_bytes(param.data, "little") for param in pitched.params] == [X, 7, 1, 64, 3, 128]


def test_the_small_kinds(made_up: Any) -> None:
    memory = SimpleNamespace(dptr=Y + 8192, bytesize=64)
    nodes = read(
        made_up.graph(
            made_up.node(3, SimpleNamespace(fn=5, userData=6)),
            made_up.node(7, 42),
            made_up.node(10, memory),
            made_up.node(2, fill(dst=Y + 8192)),
            made_up.node(11, Y + 8192),
            made_up.node(5),
        )
    )
    assert [node.unreadable for node in nodes] == [""] * 6
    assert [[param.name for param in node.params] for node in nodes[:3]] == [
        ["function", "user_data"],
        ["event"],
        ["address", "bytes"],
    ]
    assert texts(nodes[3]) == ['dst pool "alloc 0"'] and texts(nodes[4]) == ['address pool "alloc 0"']


def test_kinds_that_are_kept_unread(made_up: Any) -> None:
    nodes = read(made_up.graph(*(made_up.node(kind) for kind in (12, 8, 13, 6, 99, -1))))
    assert [node.kind for node in nodes] == [
        NodeKind.BATCH_MEM_OP,
        NodeKind.SEMAPHORE_SIGNAL,
        NodeKind.CONDITIONAL,
        NodeKind.EVENT_WAIT,
        NodeKind.UNKNOWN,
        NodeKind.UNKNOWN,
    ]
    assert all(node.unreadable for node in nodes)
    assert "cuGraphNodeGetParams: not in this version" in nodes[2].unreadable


def test_bodies_of_a_conditional_node_are_descended_into(made_up: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    body = made_up.graph(made_up.node(5))
    params = SimpleNamespace(conditional=SimpleNamespace(phGraph_out=[body, 0]))
    monkeypatch.setattr(made_up, "cuGraphNodeGetParams", lambda node: (0, params), raising=False)
    nodes = read(made_up.graph(made_up.node(13)))
    assert [(node.kind, node.parent, node.unreadable) for node in nodes] == [
        (NodeKind.CONDITIONAL, None, ""),
        (NodeKind.EMPTY, 0, ""),
    ]


@pytest.mark.parametrize("before", [True, False])
def test_the_collector_of_cycles_rests_meanwhile(made_up: Any, monkeypatch: pytest.MonkeyPatch, before: bool) -> None:
    seen: list[bool] = []

    def failing(node: int) -> None:
        seen.append(gc.isenabled())
        raise KeyboardInterrupt

    monkeypatch.setattr(made_up, "cuGraphKernelNodeGetParams", failing)
    runs = gc.isenabled()
    try:
        (gc.enable if before else gc.disable)()
        with pytest.raises(KeyboardInterrupt):
            read(made_up.graph(made_up.kernel()))
        assert seen == [False] and gc.isenabled() is before
    finally:
        (gc.enable if runs else gc.disable)()


def test_names_of_the_top_level(made_up: Any) -> None:
    child = made_up.node(4, made_up.graph(made_up.kernel()))
    graph = made_up.graph(made_up.kernel(function=8), child, made_up.kernel(func=77))
    assert kernel_names(graph) == ("kernel_8", "child", "kernel")


def test_placing_says_when_a_graph_cannot_be_listed(made_up: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(made_up, "cuGraphGetNodes", lambda graph, count: (1, [], 0))
    with pytest.raises(driver.DriverError, match="cuGraphGetNodes"):
        place(5)
