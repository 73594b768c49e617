"""What is state is found by watching, and every run starts from the same one."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import torch

from cudagraph_doctor.checks.eager_diff import subject_of
from cudagraph_doctor.graph.backend import Backend
from cudagraph_doctor.proof.arms import Arm, Arms, Result, overlaps, span
from cudagraph_doctor.proof.compare import compare
from cudagraph_doctor.proof.extent import Extent
from cudagraph_doctor.proof.state_changes import same_state
from cudagraph_doctor.proof.subject import Planned

if TYPE_CHECKING:
    from tests.proof.conftest import TinyLoop

Target = Callable[..., Any]
MakeArms = Callable[..., tuple[Arms, list[Planned]]]


def same(a: Result, b: Result) -> bool:
    """Outputs and state, bit for bit."""
    return not compare(a.outputs, b.outputs) and same_state(a.state, b.state)


def within(extents: set[Extent], tensor: torch.Tensor) -> bool:
    """Whether all of them overlap the tensor, and there are some."""
    return bool(extents) and all(overlaps(tensor, extent) for extent in extents)


def counting(self: TinyLoop, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """A step that depends on how many there were."""
    self.steps += 1  # type: ignore[attr-defined]
    return {"y": inputs["x"] * self.steps}  # type: ignore[attr-defined]


def reset_counter(self: TinyLoop) -> None:
    """Back to zero."""
    self.steps = 0  # type: ignore[attr-defined]


# what is state


def test_what_eager_steps_write_is_state(loop_target: Target, arms_of: MakeArms) -> None:
    target = loop_target()
    arms, _ = arms_of(target, 2, 1, 4)
    assert within(arms.found.state, target.cache)
    assert (arms.found.host_moves, arms.found.unrestored, arms.found.walked_all) == ([], [], True)
    assert arms.found.step_seconds > 0


def test_what_the_plan_brings_back_to_where_it_was_is_state(loop_target: Target, arms_of: MakeArms) -> None:
    def forward(self: Any, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        self.phase.bitwise_xor_(1)
        return {"y": inputs["x"] * self.phase}

    def reset(self: Any) -> None:
        self.phase = getattr(self, "phase", torch.zeros(1, dtype=torch.int64, device=self.device)).zero_()

    target = loop_target(forward=forward, reset=reset)
    arms, _ = arms_of(target, 2, 2)
    assert within(arms.found.state, target.phase)


def test_static_inputs_that_every_run_stages_are_left_alone(loop_target: Target, arms_of: MakeArms) -> None:
    arms, _ = arms_of(loop_target(), 2, 1)
    assert arms.found.touched == set()


def test_what_graph_steps_bring_back_to_where_it_was_is_put_back(loop_target: Target, arms_of: MakeArms) -> None:
    def update(self: Any, static: dict[str, torch.Tensor], fresh: dict[str, torch.Tensor]) -> None:
        for name, value in fresh.items():
            static[name].copy_(value)
        self.half.bitwise_xor_(1)

    def forward(self: Any, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {"y": inputs["x"] + self.half}

    half = torch.zeros(1, dtype=torch.int64, device=loop_target().device)
    target = loop_target(update=update, forward=forward, half=half)
    arms, (first, _) = arms_of(target, 2, 2)
    assert within(arms.found.touched, half) and not arms.found.state
    arms.save()
    assert same(arms.run(Arm.REPLAYED, first), arms.run(Arm.REPLAYED, first))


def test_where_the_state_lies_and_who_puts_other_in_its_place(loop_target: Target, arms_of: MakeArms) -> None:
    def update(self: Any, static: dict[str, torch.Tensor], fresh: dict[str, torch.Tensor]) -> None:
        for name, value in fresh.items():
            static[name][: len(value)].copy_(value)
        if len(fresh["x"]) == 1:
            self.cache = self.cache.clone()

    def reset(self: Any) -> None:
        self.cache = torch.zeros_like(self.cache)

    arms, _ = arms_of(loop_target(), 2, 1)
    assert (arms.found.state_paths, arms.found.replaced_by_reset, arms.found.replaced_by_graphs) == (["cache"], [], {})
    arms, (_, one, _) = arms_of(loop_target(update=update), 2, 1, 1)
    assert (arms.found.replaced_by_reset, arms.found.replaced_by_graphs) == ([], {"cache": one})
    arms, _ = arms_of(loop_target(reset=reset), 2, 1)
    assert (arms.found.replaced_by_reset, arms.found.replaced_by_graphs) == (["cache"], {})


def test_state_that_steps_put_anew_themselves_is_in_nobodys_place(loop_target: Target, arms_of: MakeArms) -> None:
    def forward(self: Any, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        self.cache = self.cache + 1
        return {"y": inputs["x"]}

    def reset(self: Any) -> None:
        self.cache = torch.zeros_like(self.cache)

    arms, _ = arms_of(loop_target(forward=forward, reset=reset), 2, 1)
    assert (arms.found.state_paths, arms.found.replaced_by_reset) == ([], [])


def test_steps_in_a_row_some_by_their_graph(loop_target: Target, arms_of: MakeArms) -> None:
    entered: list[int] = []

    @contextmanager
    def around(at: Planned) -> Iterator[bool]:
        yield at.rows == 1
        entered.append(at.index)

    arms, plan = arms_of(loop_target(), 2, 1, 2)
    results = arms.play(plan, around)
    assert [result.arm for result in results] == [Arm.EAGER, Arm.REPLAYED, Arm.EAGER] and entered == [0, 1, 2]
    arms.begin(plan)
    for at, result in zip(plan, results, strict=True):
        arms.save()
        right = arms.run(Arm.EAGER, at)
        assert not compare(result.outputs, right.outputs)
        arms.commit(at, right)


def test_buffers_of_an_engine_are_put_back_but_not_compared(engine_target: Target, arms_of: MakeArms) -> None:
    target = engine_target()
    arms, plan = arms_of(target, 2, 4, 1)
    assert within(arms.found.state, target.loop.cache)
    assert any(overlaps(target.static[2]["x"], extent) for extent in arms.found.touched)
    before = target.static[2]["x"].clone()
    arms.save()
    arms.run(Arm.REPLAYED, plan[0])
    assert not torch.equal(target.static[2]["x"], before)
    arms.rewind()
    assert torch.equal(target.static[2]["x"], before)


def test_what_reset_leaves_behind_is_said(loop_target: Target, arms_of: MakeArms) -> None:
    def forward(self: Any, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        self.total += 1
        return {"y": inputs["x"]}

    target = loop_target(forward=forward, total=0, reset=lambda self: None)
    arms, _ = arms_of(target, 2)
    assert arms.found.unrestored == ["total"]
    arms, _ = arms_of(loop_target(reset=lambda self: None), 2)
    assert arms.found.unrestored == ["device memory of cache"]


def test_what_is_made_on_first_use_is_state_and_no_leftover(loop_target: Target, arms_of: MakeArms) -> None:
    def forward(self: Any, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        if self.lazy is None:
            self.lazy = torch.zeros(8, device=self.device)
        self.lazy[: len(inputs["x"])] += inputs["x"]
        return {"y": self.lazy.sum(0, keepdim=True)}

    def reset(self: Any) -> None:
        if self.lazy is not None:
            self.lazy.zero_()

    target = loop_target(forward=forward, reset=reset, lazy=None)
    arms, _ = arms_of(target, 2, 1)
    assert within(arms.found.state, target.lazy)
    assert (arms.found.unrestored, arms.found.host_moves) == ([], [])


def test_memory_that_is_made_anew_each_step_is_no_state(loop_target: Target, backend: Backend) -> None:
    def forward(self: Any, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        old, self.hidden = self.hidden, self.hidden + inputs["x"].sum()
        del old
        return {"y": self.hidden.clone()}

    def reset(self: Any) -> None:
        self.hidden = torch.zeros(3, device=self.device)

    target = loop_target(forward=forward, reset=reset, hidden=None)
    target.reset()
    subject: Any = subject_of(target, backend)
    arms = Arms(subject, backend)
    plan = subject.plan(0, (), (2, 1, 2), False)
    arms.discover(plan)
    assert arms.found.state == set() and arms.found.host_moves == ["tensor hidden"]
    assert arms.found.unrestored == [], "reset() may make it anew as well"


def test_garbage_passes_for_no_memory_that_lasts(loop_target: Target, arms_of: MakeArms) -> None:
    target = loop_target()
    cycle: list[Any] = [torch.zeros(2, device=target.device)]
    cycle.append(cycle)
    gone = weakref.ref(cycle[0])
    gc.disable()
    try:
        del cycle
        arms_of(target, 2)
        assert gone() is None
    finally:
        gc.enable()


def test_nan_among_the_host_values_does_not_move(loop_target: Target, arms_of: MakeArms) -> None:
    arms, _ = arms_of(loop_target(limit=float("nan")), 2)
    assert arms.found.host_moves == []


def test_objects_too_many_to_walk(loop_target: Target, arms_of: MakeArms, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cudagraph_doctor.walk.MAX_OBJECTS", 3)
    arms, _ = arms_of(loop_target(), 2)
    assert not arms.found.walked_all


# runs


@pytest.mark.parametrize("arm", [Arm.EAGER, Arm.REPLAYED])
def test_every_run_starts_from_the_saved_state(loop_target: Target, arms_of: MakeArms, arm: Arm) -> None:
    arms, plan = arms_of(loop_target(), 2, 1)
    arms.save()
    first = arms.run(arm, plan[0])
    assert same(arms.run(arm, plan[0]), first) and same(arms.run(Arm.EAGER, plan[0]), first)
    assert first.outputs["y"].tolist() == [[3, 3], [6, 6]]
    assert arms.runs == 3


def test_committed_steps_are_what_the_next_one_starts_from(loop_target: Target, arms_of: MakeArms) -> None:
    target = loop_target()
    arms, plan = arms_of(target, 2, 4, 3, 2, 1)
    committed = []
    for at in plan:
        arms.save()
        eager = arms.run(Arm.EAGER, at)
        arms.run(Arm.REPLAYED, at)
        target.cache.fill_(99)
        arms.commit(at, eager)
        committed.append(eager.outputs["y"])
    target.reset()
    plain = [target.forward(target.next_inputs(at.step, at.rows))["y"] for at in plan]
    assert all(torch.equal(a, b) for a, b in zip(committed, plain, strict=True))


def test_steps_that_move_host_values_are_reached_by_reset_and_replay(loop_target: Target, arms_of: MakeArms) -> None:
    target = loop_target(forward=counting, reset=reset_counter, steps=0)
    arms, plan = arms_of(target, 2, 2, 2)
    assert arms.found.host_moves == ["steps"] and arms.found.unrestored == []
    for number, at in enumerate(plan, start=1):
        arms.save()
        first = arms.run(Arm.EAGER, at)
        assert first.outputs["y"][0] == number * (at.step + 1)
        assert same(arms.run(Arm.EAGER, at), first)
        arms.commit(at, first)
        assert target.steps == number


def test_steps_that_move_nothing_on_the_host_are_not_played_again(loop_target: Target, arms_of: MakeArms) -> None:
    target = loop_target()
    arms, plan = arms_of(target, 2, 2)
    resets = []
    target.reset = lambda: resets.append(1)
    for at in plan:
        arms.save()
        arms.commit(at, arms.run(Arm.EAGER, at))
    assert resets == []


def test_going_on_from_another_state(loop_target: Target, arms_of: MakeArms) -> None:
    target = loop_target(
        next_inputs=lambda self, step, n: {
            "x": torch.ones(n, device=self.device),
            "slots": torch.arange(n, device=self.device),
        }
    )
    arms, plan = arms_of(target, 2, 2, 2, 2)
    arms.save()
    eager = arms.run(Arm.EAGER, plan[0])
    assert [r.outputs["y"][0, 0].item() for r in arms.go_on(plan[0], eager.state, 2)] == [6, 9]
    empty = {extent: torch.zeros_like(data) for extent, data in eager.state.items()}
    assert [r.outputs["y"][0, 0].item() for r in arms.go_on(plan[0], empty, 9)] == [3, 6, 9]


def test_going_on_where_the_host_moves(loop_target: Target, arms_of: MakeArms) -> None:
    arms, plan = arms_of(loop_target(forward=counting, reset=reset_counter, steps=0), 2, 2)
    arms.save()
    eager = arms.run(Arm.EAGER, plan[0])
    (after,) = arms.go_on(plan[0], eager.state, 3)
    assert after.outputs["y"][0] == 2 * (plan[1].step + 1)


def test_outputs_are_copies(loop_target: Target, arms_of: MakeArms) -> None:
    target = loop_target(forward=lambda self, inputs: {"y": self.weight, "n": 3, "none": None})
    arms, plan = arms_of(target, 2)
    arms.save()
    result = arms.run(Arm.EAGER, plan[0])
    target.weight.fill_(0)
    assert result.outputs["y"].tolist() == [3, 3]
    assert (result.outputs["n"], result.outputs["none"]) == (3, None)


def test_the_result_is_measured_before_what_surrounds_it_ends(loop_target: Target, arms_of: MakeArms) -> None:
    target = loop_target()
    arms, plan = arms_of(target, 2)
    arms.save()
    eager = arms.run(Arm.EAGER, plan[0])

    @contextmanager
    def around() -> Iterator[None]:
        yield
        target.cache.fill_(7)

    assert same(arms.run(Arm.EAGER, plan[0], around()), eager)
    assert target.cache.eq(7).all()


def test_before_a_replay_is_told_which_and_after_it_that_it_is_over(loop_target: Target, backend: Backend) -> None:
    told: list[Planned | None] = []
    target = loop_target()
    subject: Any = subject_of(target, backend)
    arms = Arms(subject, backend, told.append)
    plan = subject.plan(0, (), (2,), False)
    arms.discover(plan)
    arms.capture_all(plan)
    assert told == []
    arms.discover_graphs(plan)
    assert told == [plan[0], None]
    told.clear()
    arms.begin(plan)
    arms.save()
    arms.run(Arm.EAGER, plan[0])
    assert told == []
    arms.run(Arm.REPLAYED, plan[0])
    assert told == [plan[0], None]
    target.update = lambda static, fresh: 1 // 0
    with pytest.raises(ZeroDivisionError):
        arms.run(Arm.REPLAYED, plan[0])
    assert told == [plan[0], None, plan[0]], "a replay that fails is not over"


def test_true_values_lie_in_memory_of_ours(loop_target: Target, arms_of: MakeArms, backend: Backend) -> None:
    arms, (at,) = arms_of(loop_target(), 2)
    known = set(backend.blocks())
    values = arms.truth(at)
    assert values and set(backend.blocks()) <= known
    assert all(torch.equal(value, arms.subject.truth(at)[path]) for path, value in values.items())


# names


def test_the_targets_own_names_come_first(loop_target: Target, arms_of: MakeArms) -> None:
    target = loop_target(named=lambda self: {"kv": self.cache}, state=lambda self: {"half": self.cache[:4]})
    arms, _ = arms_of(target, 2)
    names = list(arms.look_around().tensors)
    assert names[:2] == ["kv", "half"] and "weight" in names and "cache" not in names
    assert arms.look_around().find("cache") is target.cache, "its path still leads there"


def test_memory_that_nobody_has_a_name_for(loop_target: Target, arms_of: MakeArms) -> None:
    target = loop_target()
    arms, _ = arms_of(target, 2)
    nameless = torch.zeros(4, device=target.device)
    extents = {Extent(tensor.data_ptr(), 8) for tensor in (target.weight, nameless)}
    assert set(arms.names_of(extents)) == {"weight", "unnamed memory"}
    assert arms.names_of(set()) == []


def test_the_stretch_of_a_tensor() -> None:
    base = torch.zeros(4, 6)
    assert span(base) == (base.data_ptr(), 96)
    assert span(base[1:3, 2:4]) == (base.data_ptr() + 32, 32)  # to the end of its last element
    assert span(base[:, :0])[1] == 0
    assert overlaps(base, Extent(base.data_ptr() + 95, 1)) and not overlaps(base, Extent(base.data_ptr() + 96, 1))
    assert not overlaps(base[:, :0], Extent(base.data_ptr(), 96))


def test_same_state_looks_at_every_byte() -> None:
    a, b = (torch.tensor(values, dtype=torch.uint8) for values in ([1, 2], [1, 3]))
    assert same_state({Extent(0, 2): a}, {Extent(0, 2): a.clone()})
    assert not same_state({Extent(0, 2): a}, {Extent(0, 2): b})
    assert same_state({Extent(0, 2): a, Extent(8, 2): b}, {Extent(0, 2): a}), "what only one side has is not compared"
