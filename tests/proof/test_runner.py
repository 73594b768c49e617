"""A LoopTarget whose own runner captures and replays, watched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from cudagraph_doctor.errors import Inconclusive, TargetError
from cudagraph_doctor.graph.backend import Backend
from cudagraph_doctor.proof.runner import RunnerSubject
from cudagraph_doctor.proof.subject import Planned

Inputs = dict[str, torch.Tensor]
Make = Callable[..., Any]


@pytest.fixture
def subject_of(runner_target: Make, backend: Backend) -> Callable[..., RunnerSubject]:
    """A tiny target with its own runner as a subject; members given by name replace its own."""
    return lambda **members: RunnerSubject(runner_target(**members), backend)


def ready(subject: RunnerSubject, *sizes: int) -> list[Planned]:
    """Play the plan eagerly, as the arms do first, and have the runner made; the plan."""
    plan = subject.plan(0, (), sizes, False)
    for at in plan:
        subject.eager(at)
    subject.capture_all(plan, lambda at: None)
    subject.reset()
    return plan


@pytest.mark.parametrize("lazy", [False, True])
def test_all_arms_agree_on_a_sound_target(subject_of: Make, lazy: bool) -> None:
    subject = subject_of(lazy=lazy)
    for at in ready(subject, 2, 1, 4, 3):
        results = []
        for arm in (subject.eager, subject.replayed, subject.fresh):
            if arm == subject.fresh:
                subject.recapture(at)
            subject.reset()
            results.append(arm(at)["y"].tolist())
        subject.drop_fresh()
        assert results[0] == results[1] == results[2] and len(results[0]) == at.rows
        assert subject.has_replayed(at)


@pytest.mark.parametrize("lazy", [False, True])
def test_each_recapture_has_graphs_of_its_own(subject_of: Make, lazy: bool) -> None:
    subject = subject_of(lazy=lazy)
    (at,) = ready(subject, 2)
    seen = []
    for _ in range(3):
        subject.recapture(at)
        assert subject.held(at, fresh=True) == []  # those of the runner before are gone
        subject.fresh(at)
        seen.append([held.live.ordinal for held in subject.held(at, fresh=True)])
    assert len({ordinal for ordinals in seen for ordinal in ordinals}) == len(seen) == 3


def test_graphs_are_known_by_the_steps_that_replay_them(subject_of: Make) -> None:
    subject = subject_of()
    first, second = ready(subject, 2, 4)
    assert subject.held(first) == [] and not subject.has_replayed(first)
    for at in (first, second):
        subject.replayed(at)
    (two,), (four,) = subject.held(first), subject.held(second)
    assert two.live is not four.live and two.live.replays > 0
    assert {"runner.static.2.x", "runner.static.2.slots"} <= two.inputs
    assert "weight" in two.tensors and "weight" not in two.inputs
    assert subject.static_now(first) == {}


def test_the_fresh_graph_is_another_runners(subject_of: Make) -> None:
    subject = subject_of()
    (at,) = ready(subject, 2)
    subject.replayed(at)
    subject.recapture(at)
    assert subject.held(at, fresh=True) == []
    subject.fresh(at)
    (old,), (new,) = subject.held(at), subject.held(at, fresh=True)
    assert old.live is not new.live
    x = "runner.static.2.x"
    assert old.tensors[x].data_ptr() != new.tensors[x].data_ptr()
    # names stand for the runner that ran last
    assert subject.roots()["runner"] is subject._fresh_runner
    subject.drop_fresh()
    assert subject.roots()["runner"] is subject._runner and subject.held(at, fresh=True) == []
    assert subject.held(at) == [old]


def test_a_runner_that_is_made_only_once_has_no_fresh_graph(subject_of: Make) -> None:
    def graphed(self: Any) -> Callable[[Inputs], Inputs]:
        if self.runner is None:
            self.runner = type(self).__mro__[1].graphed(self)  # type: ignore[attr-defined]
        run: Callable[[Inputs], Inputs] = self.runner
        return run

    subject = subject_of(graphed=graphed, runner=None)
    (at,) = ready(subject, 2)
    with pytest.raises(Inconclusive, match="second call of graphed\\(\\) captured nothing"):
        subject.recapture(at)
    assert not subject.can_recapture
    subject.reset()
    assert subject.replayed(at)["y"].tolist() == [[3, 3], [6, 6]]


def test_a_runner_that_goes_around_its_graphs_is_noticed(subject_of: Make) -> None:
    subject = subject_of(graphed=lambda self: self.forward)
    (at,) = ready(subject, 2)
    subject.replayed(at)
    assert not subject.has_replayed(at) and subject.held(at) == []


def test_what_graphed_returns_has_to_be_callable(subject_of: Make) -> None:
    with pytest.raises(TargetError, match="graphed\\(\\) returned a NoneType"):
        ready(subject_of(graphed=lambda self: None), 2)


def test_its_replays_are_told_while_it_meets_the_buckets(subject_of: Make) -> None:
    told: list[Any] = []
    subject = subject_of()
    subject.capture_all(subject.plan(0, (), (3, 1), False), told.append)
    assert [at and (at.step, at.rows, at.key) for at in told] == [(2, 4, 4), None, (2, 2, 2), None]


def test_the_runner_meets_every_bucket_outside_the_plan(subject_of: Make) -> None:
    met: list[list[float]] = []

    def graphed(self: Any) -> Callable[[Inputs], Inputs]:
        def run(fresh: Inputs) -> Inputs:
            met.append(fresh["x"].tolist())
            return fresh

        return run

    ready(subject_of(graphed=graphed), 3, 1)
    assert met == [[3, 4, 5, 6]] * 2 + [[3, 4]] * 2
