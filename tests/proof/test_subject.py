"""What is held of a graph's surroundings outlives the user's objects."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch

from cudagraph_doctor.graph.backend import Backend, LiveGraph
from cudagraph_doctor.proof.engine import EngineSubject
from cudagraph_doctor.proof.loop import LoopSubject
from cudagraph_doctor.proof.runner import RunnerSubject
from cudagraph_doctor.proof.subject import Planned, Subject, hold


def live() -> LiveGraph:
    """Of no graph at all."""
    return LiveGraph(0, weakref.ref(set()))


def test_held_memory_stays_when_the_user_drops_it(backend: Backend) -> None:
    tensor = torch.arange(4.0, device=backend.device)
    held = hold(live(), {"x": tensor}, ["x"])
    address = tensor.data_ptr()
    del tensor
    assert held.tensors["x"].tolist() == [0, 1, 2, 3] and held.tensors["x"].data_ptr() == address
    assert address in [block.address for block in backend.blocks()]
    assert held.inputs == {"x"}


def test_other_paths_are_held_beside_the_names(backend: Backend) -> None:
    x, y = (torch.zeros(2, device=backend.device) for _ in "xy")
    held = hold(live(), {"x": x, "y": y}, paths={"x": x, "kept.x": x})
    assert held.tensors.keys() == {"x", "y"} and list(held.paths) == ["x", "y", "kept.x"]
    assert held.paths["kept.x"].data_ptr() == x.data_ptr()


def test_what_a_capture_binds_anew_is_held_as_it_was_besides(backend: Backend) -> None:
    x, y, old = (torch.zeros(2, device=backend.device) for _ in range(3))
    held = hold(live(), {"x": x, "y": y}, paths={"kept.x": x}, before={"x": old, "y": y, "kept.x": x, "gone": old})
    assert held.before.keys() == {"x"} and held.before["x"].data_ptr() == old.data_ptr()


@pytest.mark.parametrize("how", ["set_", "data"])
def test_a_tensor_that_is_given_other_memory_does_not_take_the_alias_along(backend: Backend, how: str) -> None:
    tensor = torch.zeros(2, device=backend.device)
    held = hold(live(), {"x": tensor})
    if how == "set_":
        tensor.set_(torch.ones(2, device=backend.device))  # type: ignore[call-overload]
    else:
        tensor.data = torch.ones(2, device=backend.device)
    assert held.tensors["x"].tolist() == [0, 0] and tensor.tolist() == [1, 1]


def test_a_weight_is_held_without_its_gradient(backend: Backend) -> None:
    weight = torch.nn.Parameter(torch.zeros(2, device=backend.device))
    alias = hold(live(), {"w": weight}).tensors["w"]
    assert not alias.requires_grad and alias.data_ptr() == weight.data_ptr()


def test_all_forms_keep_the_protocol(
    backend: Backend, loop_target: Any, runner_target: Any, engine_target: Any
) -> None:
    subjects: list[Subject] = [
        LoopSubject(loop_target(), backend),
        RunnerSubject(runner_target(), backend),
        EngineSubject(engine_target(), backend),
    ]
    assert [subject.form for subject in subjects] == ["loop", "loop with its own runner", "engine"]
    assert all(subject.can_recapture and not subject.pipelined and not subject.not_checked for subject in subjects)


def test_rows_in_words() -> None:
    assert [Planned(0, 0, rows, 2).in_rows for rows in (0, 1, 2)] == ["0 rows", "1 row", "2 rows"]
