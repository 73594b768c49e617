"""A LoopTarget's arms: staged, captured and replayed as the target says, or by the defaults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from cudagraph_doctor import blame, tree
from cudagraph_doctor.errors import Inconclusive, TargetError
from cudagraph_doctor.graph.backend import Backend
from cudagraph_doctor.proof.loop import LoopSubject
from cudagraph_doctor.proof.subject import Planned

Inputs = dict[str, torch.Tensor]
Make = Callable[..., Any]
SPARE = 8
"""The slot that the tiny target's padding writes."""
WRONG = TargetError("wrong", fix="mend it")


@pytest.fixture
def subject_of(loop_target: Make, backend: Backend) -> Callable[..., LoopSubject]:
    """A tiny LoopTarget as a subject; members given by name replace its own."""
    return lambda **members: LoopSubject(loop_target(**members), backend)


def ready(subject: LoopSubject, *sizes: int) -> list[Planned]:
    """Play the plan eagerly, as the arms do first, and capture; the plan."""
    plan = subject.plan(0, (), sizes, False)
    for at in plan:
        subject.eager(at)
    subject.capture_all(plan, lambda at: None)
    subject.reset()
    return plan


def careless(self: Any, static: Inputs, fresh: Inputs) -> None:
    """Leaves the padding as it is."""
    for name, value in fresh.items():
        static[name][: len(value)].copy_(value)


# the plan


def test_steps_are_numbered_and_find_their_bucket(subject_of: Make) -> None:
    plan = subject_of().plan(0, (), (1, 2, 3, 4), False)
    assert [(at.index, at.step, at.rows, at.key) for at in plan] == [
        (0, 0, 1, 2),
        (1, 1, 2, 2),
        (2, 2, 3, 4),
        (3, 3, 4, 4),
    ]


def test_sizes_are_repeated_until_there_are_steps_enough(subject_of: Make) -> None:
    assert [at.rows for at in subject_of().plan(5, (), (1, 4), False)] == [1, 4, 1, 4, 1]


def test_a_batch_above_the_largest_bucket_has_no_graph(subject_of: Make) -> None:
    subject = subject_of()
    large = subject.plan(0, (), (2, 5), False)[1]
    assert large.key is None
    ready(subject, 2)
    with pytest.raises(Inconclusive, match="no bucket serves 5 rows"):
        subject.replayed(large)


def test_only_the_buckets_asked_for(subject_of: Make) -> None:
    assert {at.key for at in subject_of().plan(4, (4,), (), False)} == {4}
    with pytest.raises(TargetError, match="no bucket 3") as caught:
        subject_of().plan(4, (3,), (), False)
    assert "[2, 4]" in caught.value.seen


# the contract


def test_pure_inputs_pass(subject_of: Make) -> None:
    numpy = pytest.importorskip("numpy")

    def next_inputs(self: Any, step: int, n: int) -> dict[str, Any]:
        nan = torch.tensor([float("nan")])
        return {"x": nan, "ids": numpy.arange(n) + step, "limit": float("nan"), "mode": "decode"}

    subject = subject_of(next_inputs=next_inputs)
    subject.check_contract(subject.plan(0, (), (1, 2), False))


def test_a_wrong_number_of_rows_is_named(subject_of: Make) -> None:
    def next_inputs(self: Any, step: int, n: int) -> dict[str, Any]:
        return {
            "x": torch.zeros(n),
            "lens": torch.zeros(n + (n == 3)),
            "starts": torch.zeros(n + 1),
            "all": torch.ones(4),
        }

    subject = subject_of(next_inputs=next_inputs)
    with pytest.raises(TargetError, match=r"next_inputs\(1, 3\) returned `lens` with 4 rows instead of 3") as refused:
        subject.check_contract(subject.plan(0, (), (4, 3, 1), False))
    assert "at n = 1, 4" in refused.value.seen


def test_a_step_that_raises_is_told(subject_of: Make) -> None:
    def forward(self: Any, inputs: Any) -> Any:
        raise ValueError("three rows")

    with pytest.raises(ValueError, match="three rows") as raised:
        subject_of(forward=forward).eager(Planned(0, 5, 3, 4))
    assert "during forward() of step 5 with 3 rows" in blame.describe(raised.value)


@pytest.mark.parametrize("what", ["x", "note"])
def test_inputs_that_depend_on_the_calls_are_refused(subject_of: Make, what: str) -> None:
    def next_inputs(self: Any, step: int, n: int) -> dict[str, Any]:
        self.calls = getattr(self, "calls", 0) + 1
        return {"x": torch.full((n,), self.calls), "note": 0} if what == "x" else {"note": self.calls}

    subject = subject_of(next_inputs=next_inputs)
    with pytest.raises(TargetError, match=f"is not pure: `{what}`"):
        subject.check_contract(subject.plan(0, (), (2,), False))


def test_inputs_that_depend_on_the_call_before_are_refused(subject_of: Make) -> None:
    def next_inputs(self: Any, step: int, n: int) -> Inputs:
        before, self.before = getattr(self, "before", 0), step
        return {"x": torch.full((n,), before)}

    subject = subject_of(next_inputs=next_inputs)
    with pytest.raises(TargetError, match="is not pure"):
        subject.check_contract(subject.plan(0, (), (2,), False))


def test_inputs_written_over_by_the_next_call_are_no_offence(subject_of: Make) -> None:
    def next_inputs(self: Any, step: int, n: int) -> Inputs:
        self.x = getattr(self, "x", torch.zeros(4))
        return {"x": self.x.fill_(step)[:n]}

    subject = subject_of(next_inputs=next_inputs)
    subject.check_contract(subject.plan(0, (), (2,), False))


def test_inputs_in_the_memory_of_static_ones_are_noticed_and_copied(subject_of: Make) -> None:
    def next_inputs(self: Any, step: int, n: int) -> Inputs:
        rows = torch.arange(n, device=self.device)
        if not hasattr(self, "shared"):
            return {"x": rows.float(), "slots": rows + step}
        self.shared["slots"][:n] = rows + step
        return {"x": rows.float(), "slots": self.shared["slots"][:n]}

    subject = subject_of(next_inputs=next_inputs)
    (at,) = ready(subject, 2)
    assert subject.not_checked == []
    subject.target.shared = subject._old[2].static
    for _ in range(2):
        truth = subject.truth(at)
        assert (
            truth["slots"].untyped_storage().data_ptr() != subject.target.shared["slots"].untyped_storage().data_ptr()
        )
        assert truth["slots"].tolist() == [0, 1]
    assert subject.not_checked == ["next_inputs returned `slots` in the memory of a static input; it was copied"]


def test_inputs_on_the_host_are_brought_to_the_device(subject_of: Make, backend: Backend) -> None:
    def next_inputs(self: Any, step: int, n: int) -> dict[str, Any]:
        return {"x": torch.ones(n), "slots": torch.arange(n), "mode": "decode", "none": None}

    subject = subject_of(next_inputs=next_inputs)
    (at,) = subject.plan(0, (), (2,), False)
    assert [backend.is_host(tensor) for tensor in subject.truth(at).values()] == [False, False]


# static inputs


def test_default_static_inputs_are_as_wide_as_the_widest_step(subject_of: Make) -> None:
    def next_inputs(self: Any, step: int, n: int) -> dict[str, Any]:
        return {"x": torch.ones(n, 1 + step), "mode": "decode"}

    subject = subject_of(next_inputs=next_inputs, forward=lambda self, inputs: inputs["x"].sum(1))
    subject.target.static_inputs = subject.target.update = None  # not offered
    ready(subject, 4, 3, 4)
    static = subject._old[4].static
    assert static["mode"] == "decode"
    assert static["x"].shape == (4, 4)  # captured at step 3, behind the plan


def test_no_default_static_input_for_one_that_changes_its_dimensions(subject_of: Make) -> None:
    def next_inputs(self: Any, step: int, n: int) -> Inputs:
        return {"x": torch.ones(n, 2) if step else torch.ones(n)}

    subject = subject_of(next_inputs=next_inputs)
    subject.target.static_inputs = None
    with pytest.raises(TargetError, match="number of dimensions changes") as caught:
        subject.capture_all(subject.plan(0, (), (2, 2), False), lambda at: None)
    assert caught.value.seen == "1 at step 0, 2 at step 1" and "static_inputs" in caught.value.fix


@pytest.mark.parametrize("given", [True, False])
def test_padding_without_an_update_is_as_static_inputs_gave_it(subject_of: Make, given: bool) -> None:
    subject = subject_of()
    subject.target.update = None
    if not given:
        subject.target.static_inputs = None
    plan = ready(subject, 4, 3)
    for at in plan:
        subject.replayed(at)
    slots = subject.static_now(plan[-1])["slots"].tolist()
    assert slots[:3] == subject.truth(plan[-1])["slots"].tolist() and slots[3] == (SPARE if given else slots[2])


def test_who_makes_up_the_padding(subject_of: Make) -> None:
    subject = subject_of()
    wide, narrow = ready(subject, 4, 3)
    assert not subject.pads(wide) and not subject.pads(narrow)
    subject.target.update = None
    assert not subject.pads(wide) and subject.pads(narrow)


def test_next_inputs_that_raises_is_told_with_its_step_and_rows(subject_of: Make) -> None:
    def next_inputs(self: Any, step: int, n: int) -> Inputs:
        return {"x": torch.ones(n), "slots": [torch.arange(n)][step]}

    subject = subject_of(next_inputs=next_inputs)
    with pytest.raises(Inconclusive, match=r"next_inputs\(step=3, n=2\) raised IndexError") as caught:
        subject.eager(Planned(0, 3, 2, 2))
    assert "list index out of range" in caught.value.seen and "in test_next_inputs" in caught.value.seen
    assert "4 rows" in caught.value.fix and "IndexError" in caught.value.traceback
    subject.eager(Planned(0, 0, 2, 2))


@pytest.mark.parametrize(
    "error", [torch.cuda.OutOfMemoryError("full"), RuntimeError("CUDA error: an illegal memory access"), WRONG]
)
def test_what_is_no_fault_of_next_inputs_goes_through(subject_of: Make, error: Exception) -> None:
    def next_inputs(self: Any, step: int, n: int) -> Inputs:
        raise error

    with pytest.raises(type(error)) as caught:
        subject_of(next_inputs=next_inputs).eager(Planned(0, 3, 2, 2))
    assert caught.value is error


def test_static_inputs_handed_out_twice_are_copied_as_they_were_at_first(subject_of: Make) -> None:
    def static_inputs(self: Any, bucket: int) -> Inputs:
        if not hasattr(self, "wide"):
            self.wide = {"x": torch.zeros(4, device=self.device), "slots": torch.full((4,), 8, device=self.device)}
        return {name: value[:bucket] for name, value in self.wide.items()}

    subject = subject_of(static_inputs=static_inputs, update=careless)
    plan = ready(subject, 4, 1)
    assert subject._old[4].static["slots"].data_ptr() == subject._old[2].static["slots"].data_ptr()
    subject.recapture(plan[1])
    fresh = subject._fresh[2].static
    assert fresh["slots"].data_ptr() != subject.target.wide["slots"].data_ptr()
    # row 1 is padding: as static_inputs had it, though the larger bucket was staged before
    assert fresh["slots"].tolist() == [3, 8]


def test_new_static_inputs_each_time_are_left_as_they_are(subject_of: Make) -> None:
    made = []

    def static_inputs(self: Any, bucket: int) -> Inputs:
        made.append(
            {"x": torch.zeros(bucket, device=self.device), "slots": torch.full((bucket,), 8, device=self.device)}
        )
        return made[-1]

    subject = subject_of(static_inputs=static_inputs)
    (at,) = ready(subject, 2)
    subject.recapture(at)
    assert subject._fresh[2].static["x"].data_ptr() == made[-1]["x"].data_ptr()


# the arms


def test_all_arms_agree_on_a_sound_target(subject_of: Make) -> None:
    subject = subject_of()
    for at in ready(subject, 2, 1, 4, 3):
        results = []
        for arm in (subject.eager, subject.replayed, subject.fresh):
            if arm == subject.fresh:
                subject.recapture(at)
            subject.reset()
            results.append({path: value.tolist() for path, value in tree.tensors(arm(at)).items()})
        assert results[0] == results[1] == results[2]
        assert len(results[0]["y"]) == at.rows
    subject.drop_fresh()
    assert subject.held(at, fresh=True) == []


def test_captures_happen_at_values_outside_the_plan(subject_of: Make) -> None:
    staged = []

    def prepare(self: Any, static: Inputs, fresh: Inputs, bucket: int, capturing: bool) -> None:
        staged.append((bucket, capturing, fresh["x"].tolist()))

    subject = subject_of(prepare=prepare)
    plan = ready(subject, 1, 3)
    assert staged == [(4, True, [3, 4, 5, 6]), (2, True, [3, 4])]  # step 2
    subject.replayed(plan[0])
    assert staged[2:] == [(2, False, [1])]


def test_captures_happen_at_the_values_that_the_target_names(subject_of: Make) -> None:
    subject = subject_of(at_capture=lambda self, bucket: {name: t[:1] for name, t in self.next_inputs(40, 1).items()})
    ready(subject, 2)
    assert subject._old[2].static["x"].tolist() == [41, 0]


def test_a_recapture_does_not_run_the_step(subject_of: Make) -> None:
    subject = subject_of()
    (at,) = ready(subject, 2)
    subject.recapture(at)
    assert subject.target.cache.eq(0).all()


def test_the_target_warms_up_itself(subject_of: Make) -> None:
    def warmup(self: Any) -> None:
        self.warmed = True

    subject = subject_of(warmup=warmup)
    ready(subject, 2)
    assert subject.target.warmed


def test_a_registered_generator_goes_on_from_replay_to_replay(subject_of: Make, backend: Backend) -> None:
    def forward(self: Any, inputs: Inputs) -> Inputs:
        return {"y": torch.rand(2, generator=self.generators[0], device=self.device)}

    subject = subject_of(forward=forward, generators=[torch.Generator(device=backend.device)])
    (at,) = ready(subject, 2)
    assert subject.replayed(at)["y"].tolist() != subject.replayed(at)["y"].tolist()


def test_a_step_that_replays_graphs_of_its_own_is_no_eager_step(subject_of: Make) -> None:
    def forward(self: Any, inputs: Inputs) -> Inputs:
        self.graph.replay()
        return inputs

    subject = subject_of(forward=forward, graph=None)
    subject.target.graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(subject.target.graph):
        subject.target.weight.mul_(1)
    with pytest.raises(Inconclusive, match="replays CUDA graphs of its own"):
        subject.eager(subject.plan(0, (), (2,), False)[0])


def test_a_graph_captured_now_is_instantiated_when_it_is_replayed(subject_of: Make) -> None:
    subject = subject_of()
    (at,) = ready(subject, 2)
    subject.recapture(at)
    (now,), (before,) = subject.held(at, fresh=True), subject.held(at)
    assert now.live.instantiate_s is None, "most are only read"
    outputs = tree.copies(subject.fresh(at))
    subject.reset()
    assert outputs["y"].equal(subject.eager(at)["y"])
    now.live.graph().instantiate()  # refused unless it was kept
    with pytest.raises(RuntimeError, match="keep_graph"):
        before.live.graph().instantiate()


def test_eager_on_the_static_inputs_of_the_fresh_graph(subject_of: Make) -> None:
    def forward(self: Any, inputs: Inputs) -> Inputs:
        return {"y": inputs["x"] + inputs["slots"].sum()}

    subject = subject_of(forward=forward)
    (at,) = ready(subject, 1)
    subject.recapture(at)
    subject._fresh[2].static["x"][0] = 5
    assert subject.eager(at)["y"].tolist() == [1]
    assert subject.padded(at)["y"].tolist() == [9], "staged anew; the padding is there, and its row is cut"


# padding


def test_padding_is_cut_wherever_eager_has_fewer(subject_of: Make) -> None:
    def forward(self: Any, inputs: Inputs) -> dict[str, Any]:
        x = inputs["x"]
        drafts = torch.stack([x, x], 1)
        return {"rows": x + 0, "layers": x.expand(3, -1) + 0, "drafts": drafts.flatten(), "n": 4, "sum": x.sum()}

    subject = subject_of(forward=forward)
    (at,) = ready(subject, 3)
    shapes = {path: tuple(value.shape) for path, value in tree.tensors(subject.replayed(at)).items()}
    assert shapes == {"rows": (3,), "layers": (3, 3), "drafts": (6,), "sum": ()}


def test_what_happens_to_be_as_long_as_the_bucket_is_no_padding(subject_of: Make) -> None:
    subject = subject_of(forward=lambda self, inputs: {"y": inputs["x"] * 2, "constant": self.cache[:4, 0] + 1})
    (at,) = ready(subject, 3)
    outputs = subject.replayed(at)
    assert (len(outputs["y"]), len(outputs["constant"])) == (3, 4)


def test_an_output_that_eager_does_not_have_is_left_alone(subject_of: Make) -> None:
    def forward(self: Any, inputs: Inputs) -> Inputs:
        extra = {"extra": inputs["x"] + 0} if torch.cuda.is_current_stream_capturing() else {}
        return {"y": inputs["x"] + 0, **extra}

    subject = subject_of(forward=forward)
    (at,) = ready(subject, 3)
    assert {path: len(value) for path, value in subject.replayed(at).items()} == {"y": 3, "extra": 4}


# names


def test_what_a_graph_had_around_it_is_held(subject_of: Make) -> None:
    def update(self: Any, static: Inputs, fresh: Inputs) -> None:
        static["slots"][:] = 8
        static["slots"][: len(fresh["slots"])] = fresh["slots"]
        static["x"] = torch.nn.functional.pad(fresh["x"], (0, len(static["slots"]) - len(fresh["x"])))

    subject = subject_of(update=update)
    (at,) = ready(subject, 2)
    (held,) = subject.held(at)
    assert held.inputs == {"x", "slots"} and {"cache", "weight"} <= held.tensors.keys()
    captured = held.tensors["x"]
    assert subject.static_now(at)["x"].data_ptr() == captured.data_ptr()
    subject.replayed(at)
    assert subject.static_now(at)["x"].data_ptr() != captured.data_ptr()
    assert captured.tolist() == [2, 3]  # of the capture, at step 1


def test_names_are_those_the_target_gives(subject_of: Make) -> None:
    subject = subject_of(
        named=lambda self: {"w": self.weight}, state=lambda self: {"kv": self.cache}, reserved=lambda self: {"kv": [8]}
    )
    assert list(subject.named()) == ["w", "kv"] and subject.reserved() == {"kv": [8]}
    assert subject.roots() == {"": subject.target}
    assert subject_of().named() == {} and subject_of().reserved() == {}
