"""Recordings as the graph model."""

from __future__ import annotations

import gc
import struct
from collections.abc import Callable
from typing import Any

import torch

from cudagraph_doctor.graph.emulated import EmulatedBackend
from cudagraph_doctor.graph.model import CapturedGraph, Region
from cudagraph_doctor.graph.regions import NamedRange, Regions

DEVICE = "cpu:0"
Capture = Callable[[Callable[[], object]], Any]


def read(backend: EmulatedBackend, *ranges: NamedRange) -> CapturedGraph:
    return backend.read(backend.log.graphs[-1], Regions(ranges), "8")


def regions(graph: CapturedGraph) -> dict[tuple[int, str], Region]:
    """(node, parameter name) -> what its first pointer means."""
    return {
        (node.index, param.name): param.pointers[0].region
        for node in graph.nodes
        for param in node.params
        if param.pointers
    }


def test_what_addresses_mean(backend: EmulatedBackend, capture: Capture) -> None:
    named, unnamed = torch.zeros(4, device=DEVICE), torch.zeros(4, device=DEVICE)
    dropped = [torch.zeros(4, device=DEVICE)]
    pinned = torch.zeros(4, pin_memory=True)
    others: list[torch.Tensor] = []
    first = capture(lambda: others.append(named + 1))
    graph = capture(
        lambda: (
            (named[2:] + unnamed[2:]) * 2,
            dropped[0][1:].add_(1),
            unnamed.copy_(pinned, non_blocking=True),
            others[0] + 1,
        )
    )
    dropped.clear()
    gc.collect()
    found = regions(read(backend, NamedRange("input", "tokens", named.data_ptr(), 16)))
    assert found[0, "self"] == Region("input", "tokens", 8)
    assert found[0, "other"] == Region("unnamed", "", 8)
    assert found[0, "out"] == Region("pool", "0", 0)
    assert found[1, "self"] == Region("pool", "0", 0) and found[1, "out"] == Region("pool", "1", 0)
    assert found[2, "self"] == Region("freed", "", 4)
    assert found[3, "src"] == Region("pinned", "", 0)
    assert found[4, "self"] == Region("unnamed", "", 0), "another graph's output"
    assert graph is not first


def test_a_name_does_not_outlive_its_memory(backend: EmulatedBackend, capture: Capture) -> None:
    held = [torch.zeros(4, device=DEVICE)]
    graph = capture(lambda: held[0].add_(1))
    name = NamedRange("input", "x", held[0].data_ptr(), 16)
    assert regions(read(backend, name))[0, "self"].kind == "input"
    held.clear()
    gc.collect()
    assert regions(read(backend, name))[0, "self"].kind == "freed" and graph is not None


def test_host_tensors_are_values(backend: EmulatedBackend, capture: Capture) -> None:
    x = torch.zeros(4, device=DEVICE)
    graph = capture(lambda: x.mul_(torch.tensor(3.0)))
    (node,) = read(backend).nodes
    assert node.params[1].value == 3.0 and not node.params[1].pointers and graph is not None


def test_offsets_follow_the_bytes(backend: EmulatedBackend, capture: Capture) -> None:
    x = torch.zeros(4, device=DEVICE)
    graph = capture(lambda: torch.add(x, 2.0, alpha=3))
    (node,) = read(backend).nodes
    assert [(p.index, p.offset, len(p.data)) for p in node.params] == [(0, 0, 24), (1, 24, 8), (2, 32, 8), (3, 40, 24)]
    assert [p.value for p in node.params] == [None, 2.0, 3, None] and graph is not None


def test_the_size_of_a_view_is_a_value(backend: EmulatedBackend, capture: Capture) -> None:
    x = torch.zeros(4, 6, device=DEVICE)
    graphs = [capture(lambda: x[:, :2].sum()), capture(lambda: x[:, :3].sum())]
    with torch._C._DisableTorchDispatch():
        read_of = [backend.read(live, Regions()).nodes[0].params[0] for live in backend.log.graphs]
    assert [struct.unpack("<4q", param.data[8:]) for param in read_of] == [(4, 2, 6, 1), (4, 3, 6, 1)]
    assert [[pointer.offset for pointer in param.pointers] for param in read_of] == [[0], [0]] and graphs


def test_two_captures_of_one_step_read_alike_but_for_addresses_in_the_pool(
    backend: EmulatedBackend, capture: Capture
) -> None:
    x = torch.ones(4, device=DEVICE)

    def step() -> None:
        (x.softmax(0) * 2).topk(2)

    kept = [capture(step), capture(step)]
    graphs = [backend.read(live, Regions()) for live in backend.log.graphs]
    shapes = [
        [(n.name, n.kind, [(p.name, p.value, [q.region for q in p.pointers]) for p in n.params]) for n in graph.nodes]
        for graph in graphs
    ]
    assert shapes[0] == shapes[1] and graphs[0].pool != graphs[1].pool and len(kept) == 2
