"""An EngineTarget's arms: its own step, with its own switch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from cudagraph_doctor.errors import Inconclusive, UsageError
from cudagraph_doctor.graph.backend import Backend
from cudagraph_doctor.graph.emulated import EmulatedBackend
from cudagraph_doctor.proof.engine import EngineSubject
from cudagraph_doctor.proof.subject import Planned

Make = Callable[..., Any]


@pytest.fixture
def subject_of(engine_target: Make, backend: Backend) -> Callable[..., EngineSubject]:
    """A tiny engine as a subject; members given by name replace its own."""
    return lambda **members: EngineSubject(engine_target(**members), backend)


def ready(subject: EngineSubject, *sizes: int) -> list[Planned]:
    """The plan, after the engine has met its keys."""
    plan = subject.plan(0, (), sizes, False)
    subject.capture_all(plan, lambda at: None)
    subject.reset()
    return plan


def capture_nothing(self: Any) -> None:
    """At construction as usual, later not at all."""
    if not hasattr(self, "captured"):
        type(self).__mro__[1].recapture(self)  # type: ignore[attr-defined]


# the plan


def test_rows_shrink_and_grow_within_what_the_engine_serves(subject_of: Make) -> None:
    assert [at.rows for at in subject_of().plan(0, (), (), False)] == [4, 3, 1, 4, 4, 3, 2, 1, 3, 4, 1, 1, 1, 1, 4]
    assert [at.key for at in subject_of().plan(0, (), (1, 3), False)] == [2, 4]


def test_batch_sizes_that_the_plan_leaves_out_are_said(subject_of: Make) -> None:
    subject = subject_of(batch_sizes=(1, 2, 3, 4, 5, 6, 7, 8), key=lambda self, i, n: n)
    played = {at.rows for at in subject.plan(0, (), (), False)}
    assert subject.not_checked == ["batch sizes 2, 3, 6: use --exhaustive"] and played == {1, 4, 5, 7, 8}
    subject = subject_of(batch_sizes=None, key=lambda self, i, n: n)
    assert max(at.rows for at in subject.plan(0, (), (), False)) == 8, "None offers none"
    subject = subject_of()
    assert subject.plan(0, (), (4,), False) and subject.not_checked == []


def test_the_rows_are_the_key_of_an_engine_that_names_none(subject_of: Make) -> None:
    subject = subject_of(batch_sizes=(1,))
    subject.target.key = None
    assert {at.key for at in subject.plan(3, (), (), False)} == {1}


def test_there_are_no_buckets_to_choose(subject_of: Make) -> None:
    with pytest.raises(UsageError, match="no list of buckets") as caught:
        subject_of().plan(3, (4,), (), False)
    assert "--batch-sizes" in caught.value.fix


def test_interludes_go_before_some_steps_in_every_arm(subject_of: Make) -> None:
    def interludes(self: Any) -> dict[str, Callable[[], object]]:
        return {"prefill": lambda: self.loop.cache.fill_(7), "idle": torch.cuda.synchronize}

    subject = subject_of(interludes=interludes)
    plan = subject.plan(9, (), (2,), False)
    assert [at.interlude for at in plan] == ["", "", "prefill", "", "", "idle", "", "", "prefill"]
    assert plan[2].in_rows == "2 rows after `prefill`" and plan[3].in_rows == "2 rows"
    subject.capture_all(plan, lambda at: None)
    for arm in (subject.eager, subject.replayed):
        subject.reset()
        assert min(arm(plan[2])["y"].flatten().tolist()) > 7 * 3


# the arms


def test_all_arms_agree_on_a_sound_engine(subject_of: Make) -> None:
    subject = subject_of()
    for at in ready(subject, 2, 1, 4, 3):
        results = []
        for arm in (subject.eager, subject.replayed, subject.fresh):
            if arm == subject.fresh:
                subject.recapture(at)
            subject.reset()
            results.append(arm(at)["y"].tolist())
        assert results[0] == results[1] == results[2]
        assert subject.has_replayed(at)


def test_every_key_is_met_once_and_its_replay_told(subject_of: Make) -> None:
    told: list[Any] = []
    subject = subject_of()
    plan = subject.plan(0, (), (2, 1, 4), False)
    subject.capture_all(plan, told.append)
    assert told == [plan[0], None, plan[2], None]


def test_eager_that_replays_is_refused(subject_of: Make) -> None:
    subject = subject_of(graphs=lambda self, on: None)
    subject.target.use_graphs = True
    with pytest.raises(Inconclusive, match="although graphs\\(False\\)"):
        subject.eager(ready(subject, 2)[0])


def test_a_step_that_goes_around_its_graph_is_noticed(subject_of: Make) -> None:
    subject = subject_of(graphs=lambda self, on: None)
    (at,) = ready(subject, 2)
    subject.replayed(at)
    assert not subject.has_replayed(at) and subject.held(at) == []


def test_graphs_are_off_after_a_reset(subject_of: Make) -> None:
    subject = subject_of()
    subject.replayed(ready(subject, 2)[0])
    assert subject.target.use_graphs
    subject.reset()
    assert not subject.target.use_graphs


# recapture


def test_without_recapture_there_is_no_fresh_arm(subject_of: Make) -> None:
    subject = subject_of()
    assert subject.can_recapture and subject.not_checked == []
    subject.target.recapture = None
    subject = EngineSubject(subject.target, subject._backend)
    assert not subject.can_recapture and "no recapture()" in subject.not_checked[0]


def test_after_a_recapture_only_the_new_graphs_are_held(subject_of: Make) -> None:
    subject = subject_of()
    (at,) = ready(subject, 2)
    subject.replayed(at)
    (old,) = subject.held(at)
    subject.reset()
    subject.recapture(at)
    assert subject.target.use_graphs, "the switch is on while it captures"
    assert subject.held(at) == [] and old.live.ordinal not in subject._held
    subject.fresh(at)
    (new,) = subject.held(at, fresh=True)
    assert new.live is not old.live
    assert new.tensors["static.2.x"].data_ptr() == subject.target.static[2]["x"].data_ptr()


def test_a_recapture_that_captures_nothing_is_no_fresh_arm(subject_of: Make) -> None:
    subject = subject_of(recapture=capture_nothing)
    (at,) = ready(subject, 2)
    with pytest.raises(Inconclusive, match="recapture\\(\\) captured nothing"):
        subject.recapture(at)
    assert not subject.can_recapture
    subject.replayed(at)
    assert len(subject.held(at)) == 1, "the old graph is still known"


def test_an_engine_that_captures_at_the_next_step(subject_of: Make) -> None:
    def recapture(self: Any) -> None:
        self.captured = {}
        self.static = {}

    def step(self: Any, i: int, n: int) -> Any:
        if self.use_graphs and not self.captured:
            type(self).__mro__[1].recapture(self)  # type: ignore[attr-defined]
        return type(self).__mro__[1].step(self, i, n)  # type: ignore[attr-defined]

    subject = subject_of(recapture=recapture, step=step)
    (at,) = ready(subject, 2)
    subject.replayed(at)
    (old,) = subject.held(at)
    subject.recapture(at)
    subject.fresh(at)
    assert subject.held(at)[0].live is not old.live


# names


def test_graphs_captured_before_the_subject_was_made_are_held(subject_of: Make) -> None:
    subject = subject_of()
    (at,) = ready(subject, 2)
    subject.replayed(at)
    (held,) = subject.held(at)
    assert {"loop.cache", "static.2.slots"} <= held.tensors.keys() and held.inputs == frozenset()


def test_names_come_from_the_roots_that_the_engine_gives(subject_of: Make) -> None:
    subject = subject_of(roots=lambda self: {"buffers": self.static}, reserved=lambda self: {"loop.cache": [8]})
    assert list(subject.roots()) == ["buffers"] and subject.reserved() == {"loop.cache": [8]}
    assert subject_of().reserved() == {} and subject_of().named() == {}
    assert subject.truth(Planned(0, 0, 1, 2)) == {} and subject.static_now(Planned(0, 0, 1, 2)) == {}


def test_generators_are_the_engines(subject_of: Make) -> None:
    generator = torch.Generator()
    assert subject_of(generators=[generator]).generators == (generator,)
    assert subject_of(generators=None).generators == ()


class HungUpLate:
    """Captures into local buffers and hangs them up when it is done, as nano-vllm does."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.eager = False
        self.recapture()

    def recapture(self) -> None:
        """One graph."""
        buffer = torch.zeros(2, device=self.device)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            out = buffer + 1
        self.buffers = {"x": buffer, "out": out}

    def reset(self) -> None:
        """Nothing to restore."""

    def graphs(self, on: bool) -> None:
        """The switch."""
        self.eager = not on

    def step(self, i: int, n: int) -> torch.Tensor:
        """x + 1."""
        fresh = torch.full((n,), float(i), device=self.device)
        if self.eager:
            return fresh + 1
        self.buffers["x"][:n].copy_(fresh)
        self.graph.replay()
        return self.buffers["out"][:n]


def test_buffers_hung_up_after_the_capture_are_held_by_their_names() -> None:
    backend = EmulatedBackend()
    with backend.installed():
        target = HungUpLate(backend.device)
        subject = EngineSubject(target, backend)
        (at, *_) = subject.plan(1, (), (2,), False)
        subject.recapture(at)
        subject.fresh(at)
        (held,) = subject.held(at, fresh=True)
        assert held.tensors["buffers.x"].data_ptr() == target.buffers["x"].data_ptr()
