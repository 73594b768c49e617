"""State that a graph step replaces is shown by what later eager steps put out, and by nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from cudagraph_doctor.proof.arms import Arms
from cudagraph_doctor.proof.compare import Level
from cudagraph_doctor.proof.replaced import (
    By,
    Replaced,
    bound_by_one_side,
    bound_by_staging,
    state_replaced,
)
from cudagraph_doctor.proof.subject import Planned

Inputs = dict[str, torch.Tensor]
Target = Callable[..., Any]
MakeArms = Callable[..., tuple[Arms, list[Planned]]]


def staged(self: Any, static: Inputs, fresh: Inputs) -> None:
    """Staging without a fault."""
    static["slots"].fill_(8)
    for name, value in fresh.items():
        static[name][: len(value)].copy_(value)


def replacing(rows: int) -> Callable[[Any, Inputs, Inputs], None]:
    """Staging that puts a copy in the cache's place when a batch has that many rows."""

    def update(self: Any, static: Inputs, fresh: Inputs) -> None:
        staged(self, static, fresh)
        if len(fresh["x"]) == rows:
            self.cache = self.cache.clone()

    return update


def same_slots(self: Any, step: int, n: int) -> Inputs:
    """Every step reads what the one before it wrote."""
    rows = torch.arange(n, device=self.device)
    return {"x": (rows + step + 1).float(), "slots": rows}


def shown(arms: Arms, plan: list[Planned], horizon: int = 6) -> Replaced | None:
    return state_replaced(arms, plan, horizon, {})


def test_a_cache_that_staging_replaces(loop_target: Target, arms_of: MakeArms) -> None:
    arms, plan = arms_of(loop_target(update=replacing(1), next_inputs=same_slots), 2, 1, 2, 1)
    found = shown(arms, plan)
    assert found is not None and (found.names, found.at, found.later) == (("cache",), plan[1], plan[2])
    assert found.healed and [d.level for d in found.differences] == [Level.LARGE]


def test_nothing_is_replaced(loop_target: Target, arms_of: MakeArms) -> None:
    arms, plan = arms_of(loop_target(next_inputs=same_slots), 2, 1, 2)
    runs = arms.runs
    assert shown(arms, plan) is None and arms.runs == runs, "and nothing is run for it"


def test_a_replaced_cache_that_nobody_reads_is_no_fault(loop_target: Target, arms_of: MakeArms) -> None:
    def forward(self: Any, inputs: Inputs) -> Inputs:
        self.cache.index_add_(0, inputs["slots"], inputs["x"][:, None].expand(-1, 2))
        return {"y": inputs["x"] + 0}

    arms, plan = arms_of(loop_target(update=replacing(1), next_inputs=same_slots, forward=forward), 2, 1, 2)
    assert arms.found.replaced_by_graphs and shown(arms, plan) is None


def test_what_is_beyond_the_horizon_is_not_seen(loop_target: Target, arms_of: MakeArms) -> None:
    arms, plan = arms_of(loop_target(update=replacing(1), next_inputs=same_slots), 2, 1, 2)
    assert shown(arms, plan, 1) is not None and shown(arms, plan, 0) is None


def test_a_graph_step_that_is_wrong_by_itself_is_left_to_the_arms(loop_target: Target, arms_of: MakeArms) -> None:
    def update(self: Any, static: Inputs, fresh: Inputs) -> None:
        replacing(1)(self, static, fresh)
        static["x"] += 100

    arms, plan = arms_of(loop_target(update=update, next_inputs=same_slots), 2, 1, 2)
    assert arms.found.replaced_by_graphs and shown(arms, plan) is None


def test_steps_that_do_not_repeat_show_nothing(loop_target: Target, arms_of: MakeArms) -> None:
    def forward(self: Any, inputs: Inputs) -> Inputs:
        self.cache.index_add_(0, inputs["slots"], inputs["x"][:, None].expand(-1, 2))
        if not torch.cuda.is_current_stream_capturing():
            self.calls += 1
        return {"y": self.cache[inputs["slots"]] + self.calls}

    arms, plan = arms_of(loop_target(update=replacing(1), next_inputs=same_slots, forward=forward, calls=0), 2, 1, 2)
    assert arms.found.replaced_by_graphs and shown(arms, plan) is None


def test_what_the_graph_wrote_does_not_heal_all(loop_target: Target, arms_of: MakeArms) -> None:
    def update(self: Any, static: Inputs, fresh: Inputs) -> None:
        replacing(1)(self, static, fresh)
        self.staged += 1

    def forward(self: Any, inputs: Inputs) -> Inputs:
        self.cache.index_add_(0, inputs["slots"], inputs["x"][:, None].expand(-1, 2))
        return {"y": self.cache[inputs["slots"]] + (0 if torch.cuda.is_current_stream_capturing() else self.staged)}

    def reset(self: Any) -> None:
        self.cache.zero_()
        self.staged = 0

    target = loop_target(update=update, next_inputs=same_slots, forward=forward, reset=reset, staged=0)
    found = shown(*arms_of(target, 2, 1, 2))
    assert found is not None and not found.healed


# tensors other than state, and state that eager steps replace


def reloading(self: Any, static: Inputs, fresh: Inputs) -> None:
    """Staging that puts another weight in place where a batch has one row."""
    staged(self, static, fresh)
    if len(fresh["x"]) == 1:
        self.weight = self.weight + 1
        self.seen = fresh["x"]


def start(self: Any) -> None:
    """Back to the first weight as well."""
    self.cache.zero_()
    self.weight = torch.full((2,), 3.0, device=self.device)


def one_sided(arms: Arms, plan: list[Planned]) -> Replaced | None:
    return bound_by_one_side(arms, plan, 6, {})


def test_a_weight_that_staging_replaces(loop_target: Target, arms_of: MakeArms) -> None:
    target = loop_target(update=reloading, next_inputs=same_slots, reset=start, seen=torch.zeros(1))
    arms, plan = arms_of(target, 2, 1, 2, 1)
    assert set(bound_by_staging(arms)) >= {"weight", "seen"} and shown(arms, plan) is None
    found = one_sided(arms, plan)
    assert found is not None and found.healed
    assert (found.names, found.at, found.later, found.by) == (("weight",), plan[1], plan[2], By.STAGING)
    assert found.line is not None and found.line.code == "self.weight = self.weight + 1"


def test_a_weight_that_is_replaced_by_its_like_does_no_harm(loop_target: Target, arms_of: MakeArms) -> None:
    def update(self: Any, static: Inputs, fresh: Inputs) -> None:
        staged(self, static, fresh)
        self.weight = self.weight.clone()

    arms, plan = arms_of(loop_target(update=update, next_inputs=same_slots, reset=start), 2, 1, 2)
    assert "weight" in bound_by_staging(arms) and one_sided(arms, plan) is None


def keeping(reads: bool) -> Callable[[Any, Inputs], Inputs]:
    """A step that keeps what it put out; eager ones look at what was kept, if `reads`."""

    def forward(self: Any, inputs: Inputs) -> Inputs:
        y = inputs["x"] + 1
        kept = 0 if torch.cuda.is_current_stream_capturing() or not reads else self.kept.sum()
        self.kept = self.kept + y.sum()
        return {"y": y + kept}

    return forward


def forget(self: Any) -> None:
    """Nothing kept."""
    self.kept = torch.zeros(1, device=self.device)


def test_state_that_only_eager_steps_put_in_place(loop_target: Target, arms_of: MakeArms) -> None:
    target = loop_target(forward=keeping(True), next_inputs=same_slots, reset=forget, kept=torch.zeros(1))
    arms, plan = arms_of(target, 2, 2, 2)
    assert arms.found.bound_by_steps == ["kept"]
    found = one_sided(arms, plan)
    assert found is not None and found.healed
    assert (found.names, found.at, found.later, found.by) == (("kept",), plan[0], plan[1], By.STEP)
    assert found.line is not None and found.line.code == "self.kept = self.kept + y.sum()"


def test_what_steps_keep_and_nobody_reads_is_no_fault(loop_target: Target, arms_of: MakeArms) -> None:
    target = loop_target(forward=keeping(False), next_inputs=same_slots, reset=forget, kept=torch.zeros(1))
    arms, plan = arms_of(target, 2, 2, 2)
    assert arms.found.bound_by_steps == ["kept"] and one_sided(arms, plan) is None


def test_what_was_written_to_for_it_is_put_back(loop_target: Target, arms_of: MakeArms) -> None:
    target = loop_target(update=reloading, next_inputs=same_slots, reset=start, seen=torch.zeros(1))
    arms, plan = arms_of(target, 2, 1, 2, 1)
    captured = arms.subject.held(plan[1])[0].tensors["weight"]
    before = captured.clone()
    assert one_sided(arms, plan) is not None and torch.equal(captured, before)


def test_without_room_for_copies_nothing_is_tried(
    loop_target: Target, arms_of: MakeArms, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = loop_target(update=reloading, next_inputs=same_slots, reset=start, seen=torch.zeros(1))
    arms, plan = arms_of(target, 2, 1, 2, 1)
    monkeypatch.setattr(arms.backend, "free_bytes", lambda: 16)
    assert one_sided(arms, plan) is None
