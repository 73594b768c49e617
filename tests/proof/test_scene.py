"""A scene is what was around right before the replay, and says which names lead elsewhere by then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from cudagraph_doctor.proof.arms import Arm, Arms
from cudagraph_doctor.proof.repair import moved_remedies, try_out
from cudagraph_doctor.proof.scene import look, moved_names
from cudagraph_doctor.proof.subject import Planned

Make = Callable[..., Any]


def stale_slots(self: Any, static: Any, fresh: Any) -> None:
    """Staging that forgets the slots."""
    static["x"][: len(fresh["x"])].copy_(fresh["x"])


class Packed(torch.Tensor):
    """What parameters of it are is told by an attribute, not by their type."""


@pytest.fixture
def stale(loop_target: Make, arms_of: Make) -> tuple[Arms, Planned]:
    """A step whose slots are those of the padding."""
    arms, plan = arms_of(loop_target(update=stale_slots), 2)
    arms.save()
    return arms, plan[0]


def test_a_scene_is_of_the_moment_before_the_replay(stale: tuple[Arms, Planned]) -> None:
    arms, at = stale
    around = look(arms, at)
    assert around.contents["x"].tolist() == [1, 2] and around.contents["slots"].tolist() == [8, 8]
    assert around.contents["cache"].eq(0).all(), "the cache is small here, and not yet written"
    assert around.moved == {} and [held.live for held in around.held] == [h.live for h in arms.subject.held(at)]
    arms.subject.target.cache.fill_(9)  # type: ignore[attr-defined]
    assert around.contents["cache"].eq(0).all()


def test_memory_shared_with_peers_is_nobodys_to_mend(engine_target: Make, arms_of: Make) -> None:
    target = engine_target(untouchable=lambda self: [self.static[2]["x"]])
    arms, plan = arms_of(target, 2)
    arms.save()
    around = look(arms, plan[0])
    names = [name for name, tensor in around.captured.items() if tensor.data_ptr() == target.static[2]["x"].data_ptr()]
    assert names and not around.contents.keys() & set(names)
    target.static[2]["x"] = target.static[2]["x"].clone()
    assert not look(arms, plan[0]).moved.keys() & set(names)


def test_weights_and_caches_are_looked_at_only_where_they_moved(loop_target: Make, arms_of: Make) -> None:
    target = loop_target()
    target.weight = torch.nn.Parameter(target.weight)
    target.packed = torch.nn.Parameter(torch.zeros(2, device=target.device).as_subclass(Packed))
    target.large = torch.zeros(1 << 15, device=target.device)
    arms, plan = arms_of(target, 2)
    arms.save()
    target.weight.data = torch.full((2,), 4.0, device=target.device)
    target.large = target.large + 1
    around = look(arms, plan[0])
    assert around.contents.keys() == {"x", "slots", "cache"} and around.live == {}
    assert around.moved.keys() == {"weight", "large"}


def test_what_is_alive_but_was_not_captured(loop_target: Make, arms_of: Make) -> None:
    target = loop_target()
    arms, plan = arms_of(target, 2)
    arms.save()
    target.later = torch.arange(2, device=target.device)
    target.frozen = torch.nn.Parameter(torch.zeros(2, device=target.device))
    target.view = target.cache[:1]
    assert {name: tensor.tolist() for name, tensor in look(arms, plan[0]).live.items()} == {"later": [0, 1]}


def test_names_that_moved_since_the_capture(loop_target: Make, arms_of: Make) -> None:
    def rebind(self: Any, static: Any, fresh: Any) -> None:
        static["slots"].fill_(8)
        static["slots"][: len(fresh["slots"])].copy_(fresh["slots"])
        static["x"] = fresh["x"].clone()

    target = loop_target(update=rebind)
    arms, plan = arms_of(target, 2)
    arms.save()
    at = plan[0]
    target.weight = torch.full((2,), 4.0, device=target.device)
    around = look(arms, at)
    assert {name: tensor.tolist() for name, tensor in around.moved.items()} == {"x": [1, 2], "weight": [4, 4]}
    assert set(moved_names(arms, at)) == {"x", "weight"}
    assert {(r.name, r.kind) for r in moved_remedies(around)} == {("x", "input"), ("weight", "weight")}
    eager = arms.run(Arm.EAGER, at)
    assert not torch.equal(try_out(arms, at, moved_remedies(around)[:1]).outputs["y"], eager.outputs["y"])
    assert torch.equal(try_out(arms, at, moved_remedies(around)).outputs["y"], eager.outputs["y"])


def test_each_path_to_a_captured_tensor_may_lead_elsewhere_on_its_own(loop_target: Make, arms_of: Make) -> None:
    target = loop_target()
    target.parts = {"head": {"weight": target.weight}, "all": [target.cache]}
    target.forward = lambda inputs: {"y": inputs["x"] * target.parts["head"]["weight"][0]}
    arms, plan = arms_of(target, 2)
    arms.save()
    target.parts["head"]["weight"] = torch.full((2,), 4.0, device=target.device)
    assert moved_names(arms, plan[0]) == ["parts.head.weight"], "`weight` is where it was"
    around = look(arms, plan[0])
    assert [(r.name, r.kind) for r in moved_remedies(around)] == [("parts.head.weight", "weight")]
    eager = arms.run(Arm.EAGER, plan[0])
    assert torch.equal(try_out(arms, plan[0], moved_remedies(around)).outputs["y"], eager.outputs["y"])
    target.cache = target.parts["all"][0] = target.cache + 1
    assert moved_names(arms, plan[0]) == ["cache", "parts.head.weight"], "paths that moved together are told once"


def test_names_of_a_sound_target_stay(loop_target: Make, arms_of: Make) -> None:
    arms, plan = arms_of(loop_target(), 2)
    arms.save()
    assert moved_names(arms, plan[0]) == [] and look(arms, plan[0]).moved == {}


def test_an_engine_is_looked_at_where_it_stages(engine_target: Make, arms_of: Make) -> None:
    arms, plan = arms_of(engine_target(stage=lambda self, static, fresh: None), 2)
    arms.save()
    around = look(arms, plan[0])
    assert around.contents["static.2.slots"].tolist() == [8, 8]
    # its true values are local variables of its step; those of this test are none of its
    assert not any(name.startswith(("arms", "plan")) for name in around.live)
    found = {tuple(tensor.tolist()) for tensor in around.live.values() if tensor.dim() == 1}
    assert {(0, 1), (1.0, 2.0)} <= found


def test_of_what_the_captured_step_binds_both_memories_are_known(loop_target: Make, arms_of: Make) -> None:
    def forward(self: Any, inputs: Any) -> Any:
        y = inputs["x"] + self.kept
        self.kept = self.kept + y.sum()
        return {"y": y}

    def reset(self: Any) -> None:
        self.kept = torch.zeros(1, device=self.device)

    arms, plan = arms_of(loop_target(forward=forward, reset=reset, kept=torch.zeros(1)), 2, 2)
    arms.save()
    arms.commit(plan[0], arms.run(Arm.EAGER, plan[0]))
    arms.save()
    eager = arms.run(Arm.EAGER, plan[1])
    around = look(arms, plan[1])
    (held,) = around.held
    old, there = around.bound["kept"]
    assert old.data_ptr() == held.before["kept"].data_ptr() != held.tensors["kept"].data_ptr()
    assert there.tolist() == [3] and "kept" in around.moved, "after the capture it was in the graph's pool"
    heals = [torch.equal(try_out(arms, plan[1], [r]).outputs["y"], eager.outputs["y"]) for r in moved_remedies(around)]
    assert heals == [False, True], "the graph reads what was there before"
