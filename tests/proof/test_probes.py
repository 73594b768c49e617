"""The first module that puts out something else, by captured copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from cudagraph_doctor.errors import Inconclusive
from cudagraph_doctor.proof.arms import Arms
from cudagraph_doctor.proof.probes import first_diverging_module
from cudagraph_doctor.proof.subject import Planned

Inputs = dict[str, Any]
Make = Callable[..., Any]


class Layer(torch.nn.Module):
    """Adds a number that lies on the host."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Shape (n,)."""
        return x + self.bias


class Model(torch.nn.Module):
    """Three layers in a row."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.attn, self.head = Layer(), Layer(), Layer()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Shape (n,)."""
        y: torch.Tensor = self.head(self.attn(self.embed(x)))
        return y


def forward(self: Any, inputs: Inputs) -> Inputs:
    """The model alone."""
    return {"y": self.model(inputs["x"])}


def biased_inputs(self: Any, step: int, n: int) -> Inputs:
    """The step number reaches the attention as a Python value."""
    return {"x": torch.arange(n, device=self.device) + 1.0, "bias": float(step)}


def biased(self: Any, inputs: Inputs) -> Inputs:
    """What the step number does is frozen."""
    self.model.attn.bias = inputs["bias"]
    return forward(self, inputs)


def copy_x(self: Any, static: Inputs, fresh: Inputs) -> None:
    """Stages; the step number is as of this step."""
    static["x"].zero_()[: len(fresh["x"])].copy_(fresh["x"])
    static["bias"] = fresh["bias"]


def static_biased(self: Any, bucket: int) -> Inputs:
    """Zeros."""
    return {"x": torch.zeros(bucket, device=self.device), "bias": 0.0}


def hooks(module: torch.nn.Module) -> int:
    """How many are left."""
    return sum(len(part._forward_hooks) for part in module.modules())


def at_last_step(made: tuple[Arms, list[Planned]]) -> tuple[Arms, Planned, Planned]:
    """Arms at the saved state of the last step; the step, and one to capture at."""
    arms, plan = made
    arms.save()
    return arms, plan[-1], Planned(plan[-1].index, arms.beyond, plan[-1].rows, plan[-1].key)


def test_the_first_module_that_has_something_frozen(loop_target: Make, arms_of: Make) -> None:
    model = Model()
    target = loop_target(next_inputs=biased_inputs, forward=biased, update=copy_x, static_inputs=static_biased)
    target.model = model
    arms, at, beyond = at_last_step(arms_of(target, 2, 1))
    assert first_diverging_module(arms, at, beyond) == "model.attn"
    assert hooks(model) == 0 and arms.subject.held(at, fresh=True) == []


def test_modules_that_agree_are_not_named(loop_target: Make, arms_of: Make) -> None:
    target = loop_target(forward=forward)
    target.model = Model()
    arms, at, beyond = at_last_step(arms_of(target, 2, 1))
    assert first_diverging_module(arms, at, beyond) == ""


def test_a_target_without_modules(loop_target: Make, arms_of: Make) -> None:
    arms, at, beyond = at_last_step(arms_of(loop_target(), 2))
    runs = arms.runs
    assert first_diverging_module(arms, at, beyond) == "" and arms.runs == runs


def test_a_module_that_runs_only_in_captures(loop_target: Make, arms_of: Make) -> None:
    def sometimes(self: Any, inputs: Inputs) -> Inputs:
        capturing = torch.cuda.is_current_stream_capturing()
        return {"y": self.model(inputs["x"]) if capturing else inputs["x"] + 0}

    target = loop_target(forward=sometimes)
    target.model = Layer()
    arms, at, beyond = at_last_step(arms_of(target, 2))
    assert first_diverging_module(arms, at, beyond) == "model"


def test_the_hooks_go_when_the_capture_fails(loop_target: Make, arms_of: Make) -> None:
    target = loop_target(forward=forward)
    target.model = Model()
    arms, at, beyond = at_last_step(arms_of(target, 2))

    def recapture(at: Planned) -> None:
        raise Inconclusive("no", fix="none")

    arms.subject.recapture = recapture  # type: ignore[method-assign]
    with pytest.raises(Inconclusive):
        first_diverging_module(arms, at, beyond)
    assert hooks(target.model) == 0


def test_of_an_engines_graphs_the_one_that_the_step_replays(engine_target: Make, arms_of: Make) -> None:
    model = Model()

    def recapture(self: Any) -> None:
        self.loop.forward = lambda inputs: {"y": model(inputs["x"])}
        model.attn.bias = 7.0  # while it captures
        type(self).__mro__[1].recapture(self)  # type: ignore[attr-defined]
        model.attn.bias = 0.0

    target = engine_target(recapture=recapture)
    target.model = model
    arms, at, beyond = at_last_step(arms_of(target, 2, 4))
    before = len(arms.backend.log.graphs)
    # the smaller bucket is captured after it
    assert first_diverging_module(arms, at, beyond) == "model.attn"
    assert hooks(model) == 0
    assert len(arms.backend.log.graphs) == before + 4, "captured again, without the probes"


def test_an_engine_that_captures_right(engine_target: Make, arms_of: Make) -> None:
    model = Model()

    def recapture(self: Any) -> None:
        self.loop.forward = lambda inputs: {"y": model(inputs["x"])}
        type(self).__mro__[1].recapture(self)  # type: ignore[attr-defined]

    target = engine_target(recapture=recapture)
    target.model = model
    arms, at, beyond = at_last_step(arms_of(target, 2, 4))
    assert first_diverging_module(arms, at, beyond) == ""
    target.recapture = None
    arms.subject.to_recapture = "add it"
    assert first_diverging_module(arms, at, beyond) == ""
