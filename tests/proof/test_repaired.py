"""What was put right is known again by who reads it, whatever its address and its name."""

from __future__ import annotations

from typing import Any, cast

import pytest
import torch

from cudagraph_doctor.findings import Location
from cudagraph_doctor.graph.backend import Edit, LiveGraph
from cudagraph_doctor.graph.model import CapturedGraph, GraphNode, NodeKind, Origin, Param, Pointer, Region
from cudagraph_doctor.proof.repair import Cause, Remedy
from cudagraph_doctor.proof.repaired import PLACES, READ_BY, mark, of_group, of_node
from cudagraph_doctor.proof.scene import Scene
from cudagraph_doctor.proof.subject import Held, Planned

AT = Planned(0, 3, 2, 4)
LINE = Location("/app/decode.py", 88)


def graph_reading(*tensors: torch.Tensor, origin: Origin | None = None) -> CapturedGraph:
    """A kernel that takes the tensors, as parameters 0, 1, ..., and a number behind them."""
    params = [
        Param(i, f"x{i}", 8 * i, bytes(8), (Pointer(0, tensor.data_ptr(), Region("input", "x", 0)),))
        for i, tensor in enumerate(tensors)
    ]
    number = Param(len(params), "scale", 8 * len(params), bytes(4))
    return CapturedGraph("4", (GraphNode(5, NodeKind.KERNEL, "attend", params=(*params, number), origin=origin),))


def scene_of(**tensors: torch.Tensor) -> Scene:
    live = cast(LiveGraph, None)
    return Scene([Held(live, dict(tensors))], {}, {}, {})


def noted(remedy: Remedy, graph: CapturedGraph | None, scene: Scene, who: Origin | None = None) -> dict[str, Any]:
    mark([remedy], scene, [graph], AT, who)
    return of_group([remedy])


def test_memory_is_known_by_the_parameters_that_point_into_it() -> None:
    slots, other = torch.arange(4), torch.arange(4)
    remedy = Remedy(Cause.STALE_TAIL, "slots", "input", buffer=slots[2:], right=torch.tensor([7, 7]), held=slots[2:])
    found = noted(remedy, graph_reading(other, slots, origin=Origin(LINE, "layers.0")), scene_of(slots=slots))
    assert found[PLACES][0] == {"graph": "4", "node": 5, "parameter": 1}
    assert {key: found[PLACES][1][key] for key in ("graph", "step")} == {"graph": "4", "step": 3}
    assert found[READ_BY] == ["attend, parameter 1 (x1), launched at /app/decode.py:88 in layers.0"]


def test_the_same_bytes_have_the_same_place_and_others_another() -> None:
    def place(held: list[int]) -> Any:
        buffer = torch.tensor(held)
        remedy = Remedy(Cause.NOT_REFRESHED, "x", "input", buffer=buffer, right=torch.tensor([9, 9]), held=buffer)
        return noted(remedy, None, scene_of(x=buffer))[PLACES]

    assert place([1, 2]) == place([1, 2]) != place([1, 3])


def test_a_parameter_that_was_set() -> None:
    edits = ((cast(LiveGraph, None), Edit(5, 1, b"1234")),)
    remedy = Remedy(Cause.BAKED, "attend, parameter 1", "parameter", edits=edits)
    found = noted(remedy, graph_reading(torch.zeros(2)), scene_of(), Origin(LINE))
    assert found == {
        PLACES: [{"graph": "4", "node": 5, "parameter": 1}],
        READ_BY: ["attend, parameter 1 (scale), launched at /app/decode.py:88"],
    }


@pytest.mark.parametrize("graph", [None, CapturedGraph("4", ())])
def test_a_graph_that_cannot_be_read_is_said(graph: CapturedGraph | None) -> None:
    edits = ((cast(LiveGraph, None), Edit(5, 1, b"1234")),)
    remedy = Remedy(Cause.BAKED, "attend, parameter 1", "parameter", edits=edits)
    assert noted(remedy, graph, scene_of())[READ_BY] == ["a parameter that could not be read"]


def test_what_was_done_otherwise_has_no_place() -> None:
    remedy = Remedy(Cause.RANDOM_STATE, "default generator", "state")
    assert noted(remedy, graph_reading(torch.zeros(2)), scene_of()) == {}


def test_a_launch_is_its_own_place() -> None:
    assert of_node(16, 28) == {PLACES: [{"graph": "16", "node": 28}]}
