"""Host values that staging leaves out: which they are, and that a graph captured with them is right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from cudagraph_doctor.proof.arms import Arm, Arms
from cudagraph_doctor.proof.compare import compare
from cudagraph_doctor.proof.host_inputs import in_tensors, left_out
from cudagraph_doctor.proof.repair import Cause, try_out
from cudagraph_doctor.proof.scene import look
from cudagraph_doctor.proof.subject import Planned

Inputs = dict[str, Any]
Make = Callable[..., Any]
MakeArms = Callable[..., tuple[Arms, list[Planned]]]


def with_numbers(target: Make, staged: tuple[str, ...] = ()) -> Any:
    """A step that adds `a` and `b`, and has a `mode`; staging sets those of `staged` on the host."""

    def next_inputs(self: Any, step: int, n: int) -> Inputs:
        rows = torch.arange(n, device=self.device)
        return {"x": (rows + step).float(), "slots": rows, "a": step, "b": 10.0 * step, "mode": "decode"}

    def static_inputs(self: Any, bucket: int) -> Inputs:
        device = self.device
        tensors = {"x": torch.zeros(bucket, device=device), "slots": torch.full((bucket,), 8, device=device)}
        return {**tensors, "a": 0, "b": 0.0, "mode": "decode"}

    def update(self: Any, static: Inputs, fresh: Inputs) -> None:
        for name in ("x", "slots"):
            static[name][: len(fresh[name])].copy_(fresh[name])
        for name in staged:
            static[name] = fresh[name]

    def forward(self: Any, inputs: Inputs) -> Inputs:
        return {"y": inputs["x"] + inputs["a"] + inputs["b"]}

    return target(next_inputs=next_inputs, static_inputs=static_inputs, update=update, forward=forward)


def remedies(arms: Arms, at: Planned) -> dict[str, Any]:
    """By name."""
    arms.save()
    arms.run(Arm.REPLAYED, at)
    return {remedy.name: remedy for remedy in left_out(arms, at)}


def test_what_staging_leaves_out_is_told_with_both_values(loop_target: Make, arms_of: MakeArms) -> None:
    arms, plan = arms_of(with_numbers(loop_target), 2, 2, 2)
    found = remedies(arms, plan[2])
    assert {name: (r.cause, r.kind, r.was, r.expected) for name, r in found.items()} == {
        "a": (Cause.LEFT_OUT, "input", 0, 2),
        "b": (Cause.LEFT_OUT, "input", 0.0, 20.0),
        "a, b": (Cause.LEFT_OUT, "input", {"a": 0, "b": 0.0}, {"a": 2, "b": 20.0}),
    }
    assert remedies(arms, plan[0]) == {}, "at step 0 all have the values of the capture"


def test_a_graph_captured_with_them_is_right(loop_target: Make, arms_of: MakeArms) -> None:
    arms, plan = arms_of(with_numbers(loop_target), 2, 2, 2)
    found = remedies(arms, plan[2])
    eager = arms.run(Arm.EAGER, plan[2])
    heals = {name: not compare(try_out(arms, plan[2], [r]).outputs, eager.outputs) for name, r in found.items()}
    assert heals == {"a": False, "b": False, "a, b": True}
    found["a, b"].capture(False)
    assert compare(arms.run(Arm.FRESH, plan[2]).outputs, eager.outputs), "captured as staging has it, it is as wrong"


def test_what_is_staged_is_not_left_out(loop_target: Make, arms_of: MakeArms) -> None:
    arms, plan = arms_of(with_numbers(loop_target, staged=("a", "b")), 2, 2, 2)
    assert remedies(arms, plan[2]) == {}


@pytest.mark.parametrize("form", ["runner_target", "engine_target"])
def test_of_other_forms_nobody_knows_the_static_inputs(
    form: str, request: pytest.FixtureRequest, arms_of: MakeArms
) -> None:
    arms, plan = arms_of(request.getfixturevalue(form)(), 2, 2)
    assert remedies(arms, plan[1]) == {}


def test_numbers_whose_static_input_is_a_tensor(loop_target: Make, arms_of: MakeArms) -> None:
    def next_inputs(self: Any, step: int, n: int) -> Inputs:
        rows = torch.arange(n, device=self.device)
        return {"x": rows.float(), "slots": rows, "ahead": 3 + step, "half": 0.5, "mode": "decode"}

    def static_inputs(self: Any, bucket: int) -> Inputs:
        zeros = torch.zeros(bucket, device=self.device)
        return {"x": zeros, "slots": zeros.long(), "ahead": zeros.clone(), "half": zeros.long(), "mode": zeros[:0]}

    def update(self: Any, static: Inputs, fresh: Inputs) -> None:
        static["x"][: len(fresh["x"])].copy_(fresh["x"])

    arms, plan = arms_of(loop_target(next_inputs=next_inputs, static_inputs=static_inputs, update=update), 2, 2)
    arms.save()
    found = in_tensors(arms, plan[1], look(arms, plan[1]).captured)
    assert {name: value.tolist() for name, value in found.items()} == {"ahead": [4.0, 4.0]}, "half does not fit"
