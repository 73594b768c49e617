"""Steps in their arms: what is kept of them, and that the state goes on as eager leaves it.

All verdicts, from a target to an outcome: `checks/test_eager_diff.py`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from cudagraph_doctor.errors import Inconclusive
from cudagraph_doctor.progress import Silent
from cudagraph_doctor.proof.arms import Arm, Arms
from cudagraph_doctor.proof.compare import Level
from cudagraph_doctor.proof.danger import Danger
from cudagraph_doctor.proof.steps import Steps
from cudagraph_doctor.proof.subject import Planned
from cudagraph_doctor.proof.verdict import Counted, Kind
from cudagraph_doctor.settings import Settings, Tolerance

Inputs = dict[str, torch.Tensor]
Make = Callable[..., Any]
Playing = tuple[Steps, list[Planned]]


@pytest.fixture
def playing(arms_of: Make) -> Callable[..., Playing]:
    """A target's steps and its plan."""

    def made(target: Any, *sizes: int, **settings: Any) -> Playing:
        arms, plan = arms_of(target, *sizes)
        subject: Any = arms.subject
        return Steps(subject, arms, Danger(arms, target, Silent()), Settings("diff", **settings)), plan

    return made


def stale_slots(self: Any, static: Inputs, fresh: Inputs) -> None:
    """Staging that forgets the slots."""
    static["x"][: len(fresh["x"])].copy_(fresh["x"])


def cache_after(arms: Arms, plan: list[Planned]) -> list[float]:
    """The first column of the cache after all steps, eagerly."""
    arms.subject.reset()
    for at in plan:
        arms.subject.eager(at)
    return [float(value) for value in arms.subject.target.cache[:, 0]]  # type: ignore[attr-defined]


@pytest.mark.parametrize("update", [None, stale_slots])
def test_the_state_goes_on_as_eager_left_it(loop_target: Make, playing: Callable[..., Playing], update: Any) -> None:
    target = loop_target(reserved=lambda self: {"cache": [8]}, **({"update": update} if update else {}))
    steps, plan = playing(target, 2, 1, 2)
    for at in plan:
        steps.play(at)
    assert target.cache[:, 0].tolist() == cache_after(steps.arms, plan)
    assert [step.verdict for step in steps.played] == ["finding" if update else "clean"] * 3
    assert [some.steps for some in steps.cases] == ([(0, 1, 2)] if update else []) and not steps.notes


@torch.library.custom_op("cudagraph_doctor_tests::seldom_rounds", mutates_args=())
def seldom_rounds(x: torch.Tensor) -> torch.Tensor:
    """`x`, at one call in four with another rounding of its first value: what a kernel with atomics does."""
    rounded = x.clone()
    if DICE.random() < 0.25:
        rounded[0] *= 1 + 2e-7
    return rounded


DICE = random.Random()


@pytest.mark.parametrize("backend", ["emulated"], indirect=True)  # a CUDA graph replays kernels, not Python
@pytest.mark.parametrize("seed", range(12))
def test_a_kernel_that_seldom_rounds_otherwise_is_not_frozen(
    loop_target: Make, playing: Callable[..., Playing], seed: int
) -> None:
    def forward(self: Any, inputs: Inputs) -> dict[str, torch.Tensor]:
        return {"y": seldom_rounds(inputs["x"] + 1)}

    DICE.seed(seed)
    steps, plan = playing(loop_target(forward=forward), *[2, 1] * 8)
    for at in plan:
        steps.play(at)
    assert [f"{case.kind} at {case.at.step}" for case in steps.cases] == []


@torch.library.custom_op("cudagraph_doctor_tests::reads_garbage", mutates_args=())
def reads_garbage(x: torch.Tensor) -> torch.Tensor:
    """`x`, but in replays, where it is what others have left behind: twice the same, then another thing each time."""
    if EAGER[0]:
        return x.clone()
    GARBAGE.append(len(GARBAGE))
    return x + 5 + max(0, GARBAGE[-1] - 2)


EAGER, GARBAGE = [True], list[int]()


@pytest.mark.parametrize("backend", ["emulated"], indirect=True)
def test_what_is_wrong_each_time_is_diagnosed_although_replays_differ(
    loop_target: Make, playing: Callable[..., Playing], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a graph that reads freed memory."""
    target = loop_target(forward=lambda self, inputs: {"y": reads_garbage(inputs["x"])})
    steps, (at,) = playing(target, 2)
    run = steps.arms.run
    GARBAGE.clear()

    def watched(arm: Arm, at: Planned, **more: Any) -> Any:
        EAGER[0] = arm is not Arm.REPLAYED
        try:
            return run(arm, at, **more)
        finally:
            EAGER[0] = True

    monkeypatch.setattr(steps.arms, "run", watched)
    steps.play(at)
    (case,) = steps.cases
    assert case.kind is Kind.FROZEN, "the graph captured now is right"
    assert case.record.counted == Counted(5, 5, 0, 5) and case.record.replay_control.level is Level.EQUAL


def test_a_gap_has_outputs_state_and_the_tolerance_that_was_given(
    loop_target: Make, playing: Callable[..., Playing]
) -> None:
    levels = []
    for given in ({}, {"": Tolerance(100.0, 0.0)}):
        steps, (at,) = playing(loop_target(update=stale_slots), 2, tolerances=given)
        steps.arms.save()
        gap = steps.gap(steps.arms.run(Arm.REPLAYED, at), steps.arms.run(Arm.EAGER, at))
        levels.append(gap.output_level)
        assert list(gap.state.names) == ["cache"]
        again = steps.gap(steps.arms.run(Arm.EAGER, at), steps.arms.run(Arm.EAGER, at))
        assert (again.level, again.outputs) == (Level.EQUAL, ())
    assert levels == [Level.LARGE, Level.SMALL]


def test_nothing_to_compare(loop_target: Make, playing: Callable[..., Playing]) -> None:
    steps, (at,) = playing(loop_target(forward=lambda self, inputs: {"y": 1}), 2)
    with pytest.raises(Inconclusive, match="no tensor"):
        steps.play(at)
