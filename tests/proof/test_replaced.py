"""State that a graph step replaces is shown by what later eager steps put out, and by nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from cudagraph_doctor.proof.arms import Arms
from cudagraph_doctor.proof.compare import Level
from cudagraph_doctor.proof.replaced import Replaced, state_replaced
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
