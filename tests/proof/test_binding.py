"""The line that puts another tensor in the place of one is found, in staging or in the step."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

from cudagraph_doctor.proof.arms import Arms
from cudagraph_doctor.proof.binding import bound_at, kept_at
from cudagraph_doctor.proof.subject import Planned

Inputs = dict[str, torch.Tensor]
Make = Callable[..., Any]
MakeArms = Callable[..., tuple[Arms, list[Planned]]]


def line(arms_of: MakeArms, target: Any, name: str) -> tuple[str, str] | None:
    """The code and the function that rebind a path at the second step."""
    arms, plan = arms_of(target, 2, 2)
    arms.save()
    found = bound_at(arms, plan[1], name)
    return (found.code, found.function.rpartition(".")[2]) if found else None


def staging(change: Callable[[Any, Inputs], None]) -> Callable[[Any, Inputs, Inputs], None]:
    """Staging that does something besides."""

    def update(self: Any, static: Inputs, fresh: Inputs) -> None:
        for name, value in fresh.items():
            static[name][: len(value)].copy_(value)
        change(self, static)

    return update


def reloaded(weight: torch.Tensor) -> torch.Tensor:
    """What a call returns is bound by the line that called."""
    new = weight + 1
    return new


def test_a_weight_that_staging_binds(loop_target: Make, arms_of: MakeArms) -> None:
    def change(self: Any, static: Inputs) -> None:
        self.weight = reloaded(self.weight)
        static["x"].mul_(1)

    assert line(arms_of, loop_target(update=staging(change)), "weight") == (
        "self.weight = reloaded(self.weight)",
        "change",
    )


def test_an_input_that_staging_binds(loop_target: Make, arms_of: MakeArms) -> None:
    def change(self: Any, static: Inputs) -> None:
        static["slots"] = static["slots"].clone()

    found = line(arms_of, loop_target(update=staging(change)), "slots")
    assert found == ('static["slots"] = static["slots"].clone()', "change")


@pytest.mark.parametrize("how", ["last line", "before another"])
def test_state_that_the_step_binds(loop_target: Make, arms_of: MakeArms, how: str) -> None:
    def ending(self: Any, y: torch.Tensor) -> None:
        self.last = y

    def forward(self: Any, inputs: Inputs) -> Inputs:
        y = inputs["x"] + 0
        if how == "last line":
            ending(self, y)
        else:
            self.last = y
            y = y + 1
        return {"y": y}

    target = loop_target(forward=forward, last=None)
    expected = ("self.last = y", "ending" if how == "last line" else "forward")
    assert line(arms_of, target, "last") == expected


def test_what_nobody_binds(loop_target: Make, arms_of: MakeArms) -> None:
    assert line(arms_of, loop_target(), "cache") is None
    assert line(arms_of, loop_target(), "no.such[path]") is None


def test_whoever_traced_before_goes_on(loop_target: Make, arms_of: MakeArms) -> None:
    arms, plan = arms_of(loop_target(), 2)
    arms.save()
    earlier, mine = sys.gettrace(), lambda *_: None
    sys.settrace(mine)
    try:
        bound_at(arms, plan[0], "cache")
        assert sys.gettrace() is mine
    finally:
        sys.settrace(earlier)


@pytest.mark.parametrize("before", [None, []], ids=["at the first time", "in a list"])
def test_what_is_kept_in_the_same_memory_is_another_object(
    loop_target: Make, arms_of: MakeArms, before: list[torch.Tensor] | None
) -> None:
    def two_steps() -> None:
        for _ in range(2):
            if before is None:
                target.last = y[:1]
            else:
                target.last.append(y[:1])

    target = loop_target(last=before)
    arms, _ = arms_of(target, 2)
    y, name = torch.zeros(2), "last" if before is None else "last[0]"
    found = kept_at(arms, name, two_steps)
    assert found is not None and found.code.startswith("target.last") and found.role == "bound"
    assert kept_at(arms, name, lambda: None) is None
