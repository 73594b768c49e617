"""Who did it: small targets with one fault each, diagnosed for real."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from cudagraph_doctor.proof import diagnose
from cudagraph_doctor.proof.arms import Arm, Arms, Result
from cudagraph_doctor.proof.compare import Level, compare
from cudagraph_doctor.proof.diagnose import Diagnosis, Doctor
from cudagraph_doctor.proof.repair import Cause, Remedy
from cudagraph_doctor.proof.scene import look
from cudagraph_doctor.proof.state_diff import state_difference
from cudagraph_doctor.proof.subject import Held, Planned
from cudagraph_doctor.proof.verdict import Gap

Inputs = dict[str, Any]
Make = Callable[..., Any]


@dataclass
class Bedside:
    """A target's arms at one step, with a doctor."""

    arms: Arms
    at: Planned

    def __post_init__(self) -> None:
        self.doctor = Doctor(self.arms, self.gap)
        self.arms.save()
        self.eager = self.arms.run(Arm.EAGER, self.at)
        self.replayed = self.arms.run(Arm.REPLAYED, self.at)
        self.bad = self.gap(self.replayed, self.eager)

    def gap(self, result: Result, reference: Result) -> Gap:
        """Outputs and state."""
        tensors = self.arms.look_around().tensors
        state = state_difference(self.arms.saved.memory, reference.state, result.state, tensors, ())
        return Gap(tuple(compare(result.outputs, reference.outputs)), state)

    def recaptured(self) -> Result:
        """What a graph captured now puts out."""
        self.arms.rewind()
        self.arms.subject.recapture(self.at)
        return self.arms.run(Arm.FRESH, self.at)

    def with_fresh(self) -> Diagnosis:
        """As the check does for loops."""
        fresh = self.recaptured()
        right = self.gap(fresh, self.eager).level is Level.EQUAL
        frozen = right and self.gap(self.replayed, fresh).level is not Level.EQUAL
        return self.doctor.with_fresh(self.at, fresh, self.eager, self.bad, frozen)


@pytest.fixture
def bedside(arms_of: Make) -> Callable[..., Bedside]:
    """Plays the sizes, and stops at the last step."""

    def made(target: Any, *sizes: int) -> Bedside:
        arms, plan = arms_of(target, *sizes)
        for at in plan[:-1]:
            arms.save()
            arms.run(Arm.REPLAYED, at)
            arms.commit(at, arms.run(Arm.EAGER, at))
        return Bedside(arms, plan[-1])

    return made


def told(found: Diagnosis) -> list[tuple[Cause, str]]:
    """(cause, name) of the culprits."""
    return [(remedy.cause, remedy.name) for remedy in found.culprits]


def stale_slots(self: Any, static: Inputs, fresh: Inputs) -> None:
    """Staging that forgets the slots."""
    static["x"][: len(fresh["x"])].copy_(fresh["x"])


def scaled_inputs(self: Any, step: int, n: int) -> Inputs:
    """With a number that lies on the host."""
    return {**type(self).__mro__[1].next_inputs(self, step, n), "scale": float(step + 2)}  # type: ignore[attr-defined]


def scaled(self: Any, inputs: Inputs) -> Inputs:
    """Passes it by value."""
    self.cache.index_add_(0, inputs["slots"], inputs["x"][:, None].expand(-1, 2))
    return {"y": self.cache[inputs["slots"]] * inputs["scale"]}


def static_scaled(self: Any, bucket: int) -> Inputs:
    """Padding, and the number as in step 0."""
    return {**type(self).__mro__[1].static_inputs(self, bucket), "scale": 2.0}  # type: ignore[attr-defined]


# both graphs at hand


def test_a_buffer_that_was_not_refreshed(loop_target: Make, bedside: Callable[..., Bedside]) -> None:
    found = bedside(loop_target(update=stale_slots), 2).with_fresh()
    assert told(found) == [(Cause.NOT_REFRESHED, "slots")]
    assert found.confirmed and not found.forced and found.tried == 1 and found.unlike is None


def test_a_number_that_was_baked(loop_target: Make, bedside: Callable[..., Bedside]) -> None:
    def restage(self: Any, static: Inputs, fresh: Inputs) -> None:
        type(self).__mro__[1].update(self, static, {n: v for n, v in fresh.items() if n != "scale"})  # type: ignore[attr-defined]
        static["scale"] = fresh["scale"]

    target = loop_target(next_inputs=scaled_inputs, forward=scaled, static_inputs=static_scaled, update=restage)
    found = bedside(target, 2, 2).with_fresh()
    (culprit,) = found.culprits
    assert (culprit.cause, culprit.was, culprit.expected) == (Cause.BAKED, 4.0, 3.0)  # captured at step 2
    assert found.confirmed and found.unlike is None
    assert found.launched is not None and "mul" in found.launched.operator
    assert found.launched.location is not None and found.launched.location.file == __file__


def test_a_baked_number_and_a_stale_buffer_are_two_faults(loop_target: Make, bedside: Callable[..., Bedside]) -> None:
    def restage(self: Any, static: Inputs, fresh: Inputs) -> None:
        stale_slots(self, static, fresh)
        static["scale"] = fresh["scale"]

    target = loop_target(next_inputs=scaled_inputs, forward=scaled, static_inputs=static_scaled, update=restage)
    found = bedside(target, 2, 2).with_fresh()
    assert {cause for cause, _ in told(found)} == {Cause.NOT_REFRESHED, Cause.BAKED}
    assert len(found.culprits) == 2 and found.confirmed


def test_a_branch_taken_at_capture(loop_target: Make, bedside: Callable[..., Bedside]) -> None:
    def forward(self: Any, inputs: Inputs) -> Inputs:
        y = scaled(self, inputs)["y"]
        return {"y": y.neg() if inputs["scale"] > 3 else y}

    def restage(self: Any, static: Inputs, fresh: Inputs) -> None:
        type(self).__mro__[1].update(self, static, {n: v for n, v in fresh.items() if n != "scale"})  # type: ignore[attr-defined]
        static["scale"] = fresh["scale"]

    target = loop_target(next_inputs=scaled_inputs, forward=forward, static_inputs=static_scaled, update=restage)
    found = bedside(target, 2, 2).with_fresh()
    assert found.culprits == [] and not found.confirmed
    assert found.unlike is not None and found.unlike.new is None, "the capture now has a node less"


def test_the_tail_that_a_larger_batch_left(loop_target: Make, bedside: Callable[..., Bedside]) -> None:
    def update(self: Any, static: Inputs, fresh: Inputs) -> None:
        for name, value in fresh.items():
            static[name][: len(value)].copy_(value)

    def forward(self: Any, inputs: Inputs) -> Inputs:
        return {"y": inputs["x"].sum() + inputs["x"]}

    found = bedside(loop_target(update=update, forward=forward), 2, 1).with_fresh()
    assert told(found) == [(Cause.STALE_TAIL, "x")]
    assert found.culprits[0].where == "padding rows 1 and up" and found.confirmed


def test_padding_that_writes_a_live_slot(loop_target: Make, bedside: Callable[..., Bedside]) -> None:
    def update(self: Any, static: Inputs, fresh: Inputs) -> None:
        type(self).__mro__[1].update(self, static, fresh)  # type: ignore[attr-defined]
        n = len(fresh["x"])
        static["x"][n:] = 5
        static["slots"][n:] = 0

    found = bedside(loop_target(update=update), 2, 1).with_fresh()
    assert told(found) == [(Cause.PADDING, "slots")] and found.confirmed


def test_nothing_that_was_tried_heals(loop_target: Make, bedside: Callable[..., Bedside]) -> None:
    def forward(self: Any, inputs: Inputs) -> Inputs:
        return {"y": inputs["x"] * (2 if torch.cuda.is_current_stream_capturing() else 3)}

    found = bedside(loop_target(forward=forward), 2).with_fresh()
    assert found.culprits == [] and not found.confirmed and found.unlike is None and found.launched is None


def test_what_was_guilty_before_is_asked_first(loop_target: Make, bedside: Callable[..., Bedside]) -> None:
    def update(self: Any, static: Inputs, fresh: Inputs) -> None:
        static["unused"].zero_()
        stale_slots(self, static, fresh)

    def next_inputs(self: Any, step: int, n: int) -> Inputs:
        inputs = type(self).__mro__[1].next_inputs(self, step, n)  # type: ignore[attr-defined]
        return {"unused": torch.ones(n, device=self.device), **inputs}

    def static_inputs(self: Any, bucket: int) -> Inputs:
        inputs = type(self).__mro__[1].static_inputs(self, bucket)  # type: ignore[attr-defined]
        return {"unused": torch.zeros(bucket, device=self.device), **inputs}

    beside = bedside(loop_target(update=update, next_inputs=next_inputs, static_inputs=static_inputs), 2)
    first, again = beside.with_fresh(), beside.with_fresh()
    assert told(first) == told(again) == [(Cause.NOT_REFRESHED, "slots")]
    assert (first.tried, again.tried) == (2, 1)


def test_trials_that_were_left_out_are_said(
    loop_target: Make, bedside: Callable[..., Bedside], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnose, "MAX_TRIALS", 0)
    beside = bedside(loop_target(update=stale_slots), 2)
    found = beside.with_fresh()
    assert found.culprits == [] and found.tried == 0
    assert beside.arms.subject.not_checked == ["step 0: 0 remedies were tried, further ones were not"]


def test_a_runner_with_several_graphs_a_step(runner_target: Make, arms_of: Make) -> None:
    def graphed(self: Any) -> Callable[[Inputs], Inputs]:
        x, middle, outputs = (torch.zeros(2, device=self.device) for _ in range(3))
        pieces = [
            capture(lambda: middle.copy_(x * self.scale)),
            capture(lambda: outputs.copy_(middle * self.scale + 1)),
        ]

        def run(fresh: Inputs) -> Inputs:
            x.copy_(fresh["x"])
            for graph in pieces:
                graph.replay()
            return {"y": outputs}

        return run

    def capture(step: Callable[[], object]) -> Any:
        step()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        return graph

    def forward(self: Any, inputs: Inputs) -> Inputs:
        return {"y": inputs["x"] * self.scale * self.scale + 1}

    target = runner_target(graphed=graphed, forward=forward, buckets=[2], scale=2.0)
    arms, plan = arms_of(target, 2)
    target.scale = 5.0
    found = Bedside(arms, plan[0]).with_fresh()
    (culprit,) = found.culprits
    assert (culprit.cause, culprit.was, culprit.expected) == (Cause.BAKED, 2.0, 5.0)
    assert len({live.ordinal for live, _ in culprit.edits}) == 2, "one number, in both graphs"


def test_other_launches_in_the_first_of_several_graphs(runner_target: Make, arms_of: Make) -> None:
    def graphed(self: Any) -> Callable[[Inputs], Inputs]:
        x, outputs = (torch.zeros(2, device=self.device) for _ in range(2))
        graphs = [torch.cuda.CUDAGraph() for _ in range(2)]
        with torch.cuda.graph(graphs[0]):
            outputs.copy_(x.relu() if self.rectified else x.neg())
        with torch.cuda.graph(graphs[1]):
            outputs.add_(1)

        def run(fresh: Inputs) -> Inputs:
            x.copy_(fresh["x"])
            for graph in graphs:
                graph.replay()
            return {"y": outputs}

        return run

    def forward(self: Any, inputs: Inputs) -> Inputs:
        return {"y": (inputs["x"].relu() if self.rectified else inputs["x"].neg()) + 1}

    target = runner_target(graphed=graphed, forward=forward, buckets=[2], rectified=False)
    arms, plan = arms_of(target, 2)
    target.rectified = True
    found = Bedside(arms, plan[0]).with_fresh()
    assert found.unlike is not None and found.unlike.index == 0 and found.culprits == []


# engines: before and after the old graph is gone


def test_an_engines_true_values_are_found_around_its_replay(
    engine_target: Make, bedside: Callable[..., Bedside]
) -> None:
    beside = bedside(engine_target(stage=stale_slots), 2)
    found = beside.doctor.before_recapture(beside.at, beside.eager, beside.bad)
    assert told(found) == [(Cause.NOT_REFRESHED, "static.2.slots")] and found.confirmed
    assert found.scene is not None and found.scene.contents["static.2.slots"].tolist() == [8, 8]


@pytest.mark.parametrize(("factor", "guesses"), [(1.5, True), (1 + 1e-6, False)])
def test_nothing_is_guessed_where_only_rounding_differs(
    engine_target: Make, bedside: Callable[..., Bedside], factor: float, guesses: bool
) -> None:
    def step(self: Any, i: int, n: int) -> Inputs:
        outputs: Inputs = type(self).__mro__[1].step(self, i, n)  # type: ignore[attr-defined]
        return {"y": outputs["y"] * factor} if self.use_graphs else outputs

    target = engine_target(step=step)
    target.offsets = torch.tensor([0, 7], device=target.loop.device)  # any two slots would fit
    target.loop.buckets = [2]
    target.recapture()
    beside = bedside(target, 2)
    found = beside.doctor.before_recapture(beside.at, beside.eager, beside.bad)
    assert found.culprits == [] and bool(found.tried) == guesses


def test_an_engines_padding_that_writes_a_live_slot(engine_target: Make, bedside: Callable[..., Bedside]) -> None:
    def stage(self: Any, static: Inputs, fresh: Inputs) -> None:
        n = len(fresh["x"])
        self.loop.update(static, fresh)
        static["x"][n:] = 5
        static["slots"][n:] = 0

    beside = bedside(engine_target(stage=stage), 2, 1)
    found = beside.doctor.before_recapture(beside.at, beside.eager, beside.bad)
    assert told(found) == [(Cause.PADDING, "static.2.slots")] and found.confirmed


def test_a_weight_replaced_before_the_target_was_known(engine_target: Make, bedside: Callable[..., Bedside]) -> None:
    target = engine_target()
    replaced = target.loop.weight  # kept here alone: its memory must not become somebody else's meanwhile
    target.loop.weight = replaced * 2
    beside = bedside(target, 2)
    before = beside.doctor.before_recapture(beside.at, beside.eager, beside.bad)
    assert told(before) == [(Cause.REBOUND, "loop.weight")] and before.confirmed
    assert before.culprits[0].notes["read_by"]


def test_a_weight_replaced_before_the_target_was_known_whose_memory_is_gone(
    engine_target: Make, bedside: Callable[..., Bedside], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnose, "abandoned_remedies", lambda *_: [])
    target = engine_target()
    replaced = target.loop.weight  # kept here alone: its memory must not become somebody else's meanwhile
    target.loop.weight = replaced * 2
    beside = bedside(target, 2)
    before = beside.doctor.before_recapture(beside.at, beside.eager, beside.bad)
    assert before.culprits == [] and before.scene is not None
    old = beside.doctor.read(beside.arms.subject.held(beside.at))
    assert not beside.gap(beside.recaptured(), beside.eager).outputs
    found = beside.doctor.after_recapture(beside.at, old, before.scene, beside.replayed)
    assert told(found) == [(Cause.REBOUND, "loop.weight")]
    assert not found.confirmed and not found.forced, "nobody knows the old memory: nothing could be tried"


def test_what_was_baked_into_a_graph_that_is_gone_is_forced_on_its_successor(
    engine_target: Make, bedside: Callable[..., Bedside]
) -> None:
    def step(self: Any, i: int, n: int) -> Inputs:
        outputs: Inputs = type(self).__mro__[1].step(self, i, n)  # type: ignore[attr-defined]
        return outputs

    target = engine_target(step=step)
    target.loop.forward = lambda inputs: {"y": inputs["x"] * target.scale}
    target.scale = 2.0
    target.recapture()
    target.scale = 3.0
    beside = bedside(target, 2)
    before = beside.doctor.before_recapture(beside.at, beside.eager, beside.bad)
    assert before.culprits == [] and before.scene is not None
    old = beside.doctor.read(beside.arms.subject.held(beside.at))
    assert not beside.gap(beside.recaptured(), beside.eager).outputs
    found = beside.doctor.after_recapture(beside.at, old, before.scene, beside.replayed)
    (culprit,) = found.culprits
    assert (culprit.cause, culprit.was, culprit.expected) == (Cause.BAKED, 2.0, 3.0)
    assert found.confirmed and found.forced and found.launched is not None


def test_what_a_buffer_held_is_forced_on_its_successor(engine_target: Make, bedside: Callable[..., Bedside]) -> None:
    def stage(self: Any, static: Inputs, fresh: Inputs) -> None:
        static["x"].copy_(fresh["x"])
        if self.stale is None:
            static["slots"].copy_(fresh["slots"])

    target = engine_target(stage=stage, stale=True)
    beside = bedside(target, 2)
    scene = look(beside.arms, beside.at)
    target.stale = None
    assert not beside.gap(beside.recaptured(), beside.eager).outputs
    found = beside.doctor.after_recapture(beside.at, [], scene, beside.replayed)
    (culprit,) = found.culprits
    assert (culprit.cause, culprit.name) == (Cause.NOT_REFRESHED, "static.2.slots") and found.forced
    assert culprit.held is not None and culprit.held.tolist() == [8, 8]
    assert culprit.right is not None and culprit.right.tolist() == [0, 1]


# reading


def test_a_graph_that_is_gone_cannot_be_read(loop_target: Make, bedside: Callable[..., Bedside]) -> None:
    beside = bedside(loop_target(), 2)
    (held,) = beside.arms.subject.held(beside.at)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.zeros(1, device=beside.arms.backend.device).add_(1)
    gone = Held(beside.arms.backend.log.graphs[-1])
    del graph
    gc.collect()
    read, nothing = beside.doctor.read([held, gone])
    assert nothing is None and read is not None and read.nodes


@pytest.mark.parametrize("needed", ["a", "d", "bc", "ad", "abcde"])
def test_the_smallest_set_of_parameters(needed: str) -> None:
    trials = 0

    def good(some: Sequence[Remedy]) -> bool:
        nonlocal trials
        trials += 1
        return set(needed) <= {remedy.name for remedy in some}

    remedies = [Remedy(Cause.BAKED, name, "parameter") for name in "abcde"]
    assert "".join(remedy.name for remedy in diagnose._smallest(remedies, good)) == needed
    assert trials <= 10
