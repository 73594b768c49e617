"""Capturing the same steps again and again, and what their dumps hold."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from cudagraph_doctor.checks.eager_diff import subject_of
from cudagraph_doctor.graph.backend import Backend
from cudagraph_doctor.graph.cuda import CudaBackend
from cudagraph_doctor.graph.emulated import EmulatedBackend
from cudagraph_doctor.proof.arms import Arms
from cudagraph_doctor.proof.subject import Planned
from cudagraph_doctor.replays.baked import judge
from cudagraph_doctor.replays.candidates import Kind
from cudagraph_doctor.replays.model import Dump
from cudagraph_doctor.replays.recapture import MOVED_ON, captures, interleaved

Inputs = dict[str, Any]
A, B = Planned(1, 1, 2, 2), Planned(2, 2, 2, 2)


class Loop:
    """A LoopTarget whose step scales by numbers of the host."""

    buckets = (2,)

    def __init__(self, device: str, scale: Callable[[Any, Inputs], float]) -> None:
        self.device = device
        self.scale = scale
        self.rounds = 0
        self.mode = "decode"

    def next_inputs(self, step: int, n: int) -> Inputs:
        return {"x": torch.ones(n, device=self.device) * step, "length": 10 + step}

    def static_inputs(self, bucket: int) -> Inputs:
        return {"x": torch.zeros(bucket, device=self.device), "length": 0}

    def update(self, static: Inputs, fresh: Inputs) -> None:
        static["x"].copy_(fresh["x"])
        static["length"] = fresh["length"]

    def forward(self, inputs: Inputs) -> Inputs:
        self.rounds += 1
        return {"y": inputs["x"] * self.scale(self, inputs)}

    def reset(self) -> None:
        self.rounds = 0


class Engine:
    """An EngineTarget that captures its step at `self.length`."""

    batch_sizes = (2,)

    def __init__(self, device: str) -> None:
        self.static = torch.zeros(2, device=device)
        self.length = 0
        self.on = False
        self.recapture()

    def recapture(self) -> None:
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.out = self.static * float(self.length)

    def step(self, i: int, n: int) -> torch.Tensor:
        self.length = 10 + i
        self.static.fill_(i)
        if not self.on:
            return self.static * float(self.length)
        self.graph.replay()
        return self.out

    def graphs(self, on: bool) -> None:
        self.on = on

    def reset(self) -> None:
        self.length = 0


@pytest.fixture(params=["emulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    if request.param == "cuda" and (reason := CudaBackend.why_unusable()):
        pytest.skip(reason)
    made: Backend = CudaBackend() if request.param == "cuda" else EmulatedBackend()
    with made.installed():
        yield made


def dumped(target: Any, backend: Backend, times: int = 3) -> list[Dump]:
    arms = Arms(subject_of(target, backend), backend)
    plan = arms.subject.plan(0, (), (2, 2, 2), False)
    arms.discover(plan)
    arms.capture_all(plan)
    return captures(arms, interleaved([A, B], times, plan))


def kinds(target: Any, backend: Backend) -> list[tuple[Kind, str]]:
    return [(one.kind, one.follows) for one in judge(dumped(target, backend)).candidates]


def test_steps_take_turns_and_the_host_moves_on_at_the_end() -> None:
    plan = [Planned(0, 0, 2, 2), A, B]
    asked = interleaved([A, B], 2, plan)
    assert [one.at.step for one in asked] == [1, 2, 2, 1] + [1] * MOVED_ON
    assert [one.moved_on for one in asked] == [0] * 4 + list(range(1, MOVED_ON + 1))
    assert [len(one.before) for one in asked[:2]] == [1, 2] and not interleaved([A], 1)[0].before


@pytest.mark.parametrize(
    ("scale", "expected"),
    [
        (lambda loop, inputs: 3.0, []),
        (lambda loop, inputs: 0.5 * inputs["length"], [(Kind.VALUE, "length")]),
        (lambda loop, inputs: 0.25 + loop.rounds, [(Kind.COUNTER, "rounds")]),
        (lambda loop, inputs: random.random(), [(Kind.DRAW, "")]),
        (lambda loop, inputs: float(torch.rand(1, device="cpu")), [(Kind.DRAW, "")]),
    ],
    ids=["constant", "length", "counter", "draw", "torch's draw"],
)
def test_what_a_loop_bakes_in(backend: Backend, scale: Any, expected: list[tuple[Kind, str]]) -> None:
    assert kinds(Loop(backend.device, scale), backend) == expected


def test_an_engine_is_captured_at_the_values_that_its_step_sets(backend: Backend) -> None:
    assert kinds(Engine(backend.device), backend) == [(Kind.VALUE, "length")]


def test_host_values_are_told_before_and_after_if_they_differ(backend: Backend) -> None:
    dumps = dumped(Loop(backend.device, lambda loop, inputs: 3.0), backend)
    assert [(dump.host["length"], dump.host["rounds"]) for dump in dumps[:2]] == [(11, 1), (12, 2)]
    assert dumps[0].host_after == {"rounds": 2} and "mode" not in dumps[0].host
    assert [dump.ordinal for dump in dumps] == list(range(6 + MOVED_ON))


def test_the_hosts_generators_are_left_as_they_were(backend: Backend) -> None:
    target = Loop(backend.device, lambda loop, inputs: random.random())
    arms = Arms(subject_of(target, backend), backend)
    plan = arms.subject.plan(0, (), (2, 2, 2), False)
    arms.discover(plan)
    arms.capture_all(plan)
    state = random.getstate()
    captures(arms, interleaved([A, B], 1, plan))
    assert random.getstate() == state
