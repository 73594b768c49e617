"""The steps in a row: outputs that are kept, and steps that overlap."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from cudagraph_doctor.findings import Finding, Proof, Severity
from cudagraph_doctor.progress import Silent
from cudagraph_doctor.proof import free_run
from cudagraph_doctor.proof.arms import Arms
from cudagraph_doctor.proof.at_once import AtOnce
from cudagraph_doctor.proof.free_run import free_run_findings
from cudagraph_doctor.proof.subject import Planned

Inputs = dict[str, Any]
Make = Callable[..., Any]


class Lines(Silent):
    """Remembers what was done."""

    def __init__(self) -> None:
        self.advanced: list[str] = []

    def advance(self, text: str = "") -> None:
        """A line."""
        self.advanced.append(text)


def findings_of(made: tuple[Arms, list[Planned]], values: bool = True) -> list[Finding]:
    """Of the free run."""
    arms, plan = made
    return free_run_findings(arms, plan, Silent(), values)


def keeping(clone: bool) -> Callable[..., Inputs]:
    """A step that adds what the step before put out, kept as it came from the graph, or cloned."""

    def step(self: Any, i: int, n: int) -> Inputs:
        fresh = self.loop.next_inputs(i, n)
        if self.use_graphs:
            self.stage(self.static[2], fresh)
            graph, outputs = self.captured[2]
            graph.replay()
        else:
            outputs = self.loop.forward(fresh)
        y = outputs["y"]
        total = y + self.last if self.last is not None else y + 0
        self.last = y.clone() if clone else y[:n]
        return {"y": total, "step": f"token {i}"}

    return step


def forget(self: Any) -> None:
    """Before step 0 nothing was put out."""
    self.loop.reset()
    self.last = None


# kept outputs


def test_an_output_that_is_kept_over_a_replay(engine_target: Make, arms_of: Make) -> None:
    made = arms_of(engine_target(step=keeping(clone=False), reset=forget, last=None), 2, 2, 2)
    (finding,) = findings_of(made)
    assert (finding.code, finding.severity, finding.proof) == ("CGD104", Severity.ERROR, Proof.CONFIRMED)
    assert finding.culprit is not None and (finding.culprit.kind, finding.culprit.name) == ("output", "last")
    assert finding.step == 1 and "last = output.clone()" in finding.fix
    assert finding.evidence["kept"] == ["last"]
    assert finding.location is not None and finding.location.code == "self.last = y.clone() if clone else y[:n]"


def test_a_clone_may_be_kept(engine_target: Make, arms_of: Make) -> None:
    assert findings_of(arms_of(engine_target(step=keeping(clone=True), reset=forget, last=None), 2, 2, 2)) == []


def test_of_two_that_are_kept_the_one_that_is_read_later(engine_target: Make, arms_of: Make) -> None:
    def step(self: Any, i: int, n: int) -> Inputs:
        outputs = keeping(clone=False)(self, i, n)
        self.also = self.captured[2][1]["y"][:n]
        return outputs

    (finding,) = findings_of(arms_of(engine_target(step=step, reset=forget, also=None, last=None), 2, 2, 2))
    assert finding.evidence["kept"] == ["also", "last"]
    assert finding.culprit is not None and finding.culprit.name == "last"


def test_the_runners_own_output_tensor_cannot_be_moved(engine_target: Make, arms_of: Make) -> None:
    def step(self: Any, i: int, n: int) -> Inputs:
        outputs = keeping(clone=False)(self, i, n)
        if self.use_graphs:
            self.last = self.captured[2][1]["y"]
        return outputs

    made = arms_of(engine_target(step=step, reset=forget, last=None), 2, 2, 2)
    assert findings_of(made) == []
    assert made[0].subject.not_checked == [
        "kept outputs: `last` is the runner's own output tensor; whether a later step reads it was not tried"
    ]


def test_a_kept_output_that_nobody_reads(engine_target: Make, arms_of: Make) -> None:
    def step(self: Any, i: int, n: int) -> Inputs:
        self.last = self.captured[2][1]["y"][:n]
        outputs: Inputs = type(self).__mro__[1].step(self, i, n)  # type: ignore[attr-defined]
        return outputs

    assert findings_of(arms_of(engine_target(step=step, reset=forget, last=None), 2, 2)) == []


def test_moving_it_has_to_bring_the_outputs_nearer_to_eager(engine_target: Make, arms_of: Make) -> None:
    def step(self: Any, i: int, n: int) -> Inputs:
        outputs: Inputs = type(self).__mro__[1].step(self, i, n)  # type: ignore[attr-defined]
        if not self.use_graphs:
            return outputs
        right = self.last is None or self.last.data_ptr() == self.captured[2][1]["y"].data_ptr()
        self.last = self.captured[2][1]["y"][:n]
        return {"y": outputs["y"] if right else outputs["y"] + 100}

    assert findings_of(arms_of(engine_target(step=step, reset=forget, last=None), 2, 2)) == []


def test_values_are_left_out_on_demand(engine_target: Make, arms_of: Make) -> None:
    def step(self: Any, i: int, n: int) -> Inputs:
        outputs = keeping(clone=False)(self, i, n)
        return {"secret": outputs["y"].sum().item()}

    target = engine_target(step=step, reset=forget, last=None)
    (finding,) = findings_of(arms_of(target, 2, 2, 2))
    assert " instead of " in finding.message
    (finding,) = findings_of(arms_of(target, 2, 2, 2), values=False)
    assert " instead of " not in finding.message and "secret: another value" in finding.message


# what is run at all


def test_a_loop_that_the_doctor_replays_itself_keeps_nothing(loop_target: Make, arms_of: Make) -> None:
    arms, plan = arms_of(loop_target(), 2, 2)
    lines = Lines()
    replays = arms.backend.log.replays
    assert free_run_findings(arms, plan, lines, True) == []
    assert lines.advanced == [] and arms.backend.log.replays == replays


def test_a_runner_keeps_outputs_as_an_engine_does(runner_target: Make, arms_of: Make) -> None:
    lines = Lines()
    arms, plan = arms_of(runner_target(), 2, 1, 4, 2)
    assert free_run_findings(arms, plan, lines, True) == []
    assert lines.advanced == ["in a row, waiting after each step"]


def test_steps_in_a_row_that_do_not_repeat_are_not_judged(engine_target: Make, arms_of: Make) -> None:
    made = arms_of(engine_target(), 2, 2)
    made[0].subject.target.step = lambda i, n: {"y": random.random()}
    assert findings_of(made) == []
    assert made[0].subject.not_checked == [
        "kept outputs and ordering: the same steps in a row gave different results twice"
    ]


# overlapping steps


def overlapping(ordered: bool) -> Callable[..., Inputs]:
    """A step that stages on a stream of its own; with or without the edge back from the replay."""

    def step(self: Any, i: int, n: int) -> Inputs:
        fresh = self.loop.next_inputs(i, n)
        if not self.use_graphs:
            outputs: Inputs = self.loop.forward(fresh)
            return outputs
        copies, main = self.copies, torch.cuda.current_stream()
        if ordered:
            copies.wait_event(self.consumed)
        copies.wait_stream(self.made)
        with torch.cuda.stream(copies):
            self.stage(self.static[2], fresh)
            self.staged.record()
        main.wait_event(self.staged)
        graph, outputs = self.captured[2]
        graph.replay()
        self.consumed.record()
        return {"y": outputs["y"].clone()}

    return step


def overlapping_engine(make: Make, ordered: bool) -> Any:
    """Inputs are made and staged beside the main stream, so the host runs ahead of the replays."""
    target = make(pipelined=True, step=overlapping(ordered))
    target.copies, target.made = torch.cuda.Stream(), torch.cuda.Stream()
    target.staged, target.consumed = torch.cuda.Event(), torch.cuda.Event()
    made, next_inputs = target.made, target.loop.next_inputs
    alive: list[Inputs] = []  # the copies run late: memory of earlier inputs must not be given to later ones

    def beside(step: int, n: int) -> Inputs:
        with torch.cuda.stream(made):
            inputs: Inputs = next_inputs(step, n)
        alive.append(inputs)
        return inputs

    if target.loop.device == "cuda":
        eager = target.loop.forward

        def waiting(inputs: Inputs) -> Inputs:
            if not torch.cuda.is_current_stream_capturing():
                torch.cuda.current_stream().wait_stream(made)
            outputs: Inputs = eager(inputs)
            return outputs

        target.loop.next_inputs, target.loop.forward = beside, waiting
    return target


@pytest.mark.parametrize("backend", ["emulated"], indirect=True)
def test_ordering_cannot_be_judged_without_a_gpu(engine_target: Make, arms_of: Make) -> None:
    made = arms_of(overlapping_engine(engine_target, ordered=False), 2, 2, 2)
    assert findings_of(made) == []
    assert made[0].subject.not_checked == ["ordering between overlapping steps: needs a GPU"]


@pytest.mark.parametrize("backend", ["emulated"], indirect=True)
@pytest.mark.parametrize(("runs", "by_copies"), [([0, 0], True), ([0, 1], False), ([1, 0], False)])
def test_an_order_is_the_copies_where_they_heal_it_twice(
    runs: list[int], by_copies: bool, engine_target: Make, arms_of: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    arms, plan = arms_of(overlapping_engine(engine_target, ordered=True), 2, 2, 2)
    outputs = iter([[{"y": torch.tensor([run])}] for run in runs])
    monkeypatch.setattr(free_run, "run_freely", lambda *_args, **_how: next(outputs))
    assert free_run.right_by_copies(arms, plan, [{"y": torch.tensor([0])}], AtOnce()) is by_copies
    found = free_run._copies_too_late(arms, plan[1:])
    assert (found.code, found.step, found.culprit) == ("CGD105", plan[1].step, None)
    assert found.evidence["seen_at_steps"] == [at.step for at in plan[1:]]


@pytest.mark.gpu
@pytest.mark.parametrize("backend", ["cuda"], indirect=True)
def test_a_buffer_rewritten_while_a_replay_reads_it(engine_target: Make, arms_of: Make) -> None:
    (finding,) = findings_of(arms_of(overlapping_engine(engine_target, ordered=False), *[2] * 6))
    assert (finding.code, finding.proof) == ("CGD105", Proof.CONFIRMED)
    assert finding.culprit is not None and finding.culprit.name == "static.2.slots"
    assert finding.culprit.kind == "step order" and finding.step is not None and finding.step < 6


@pytest.mark.gpu
@pytest.mark.parametrize("backend", ["cuda"], indirect=True)
def test_the_edge_back_makes_it_right(engine_target: Make, arms_of: Make) -> None:
    assert findings_of(arms_of(overlapping_engine(engine_target, ordered=True), *[2] * 6)) == []
