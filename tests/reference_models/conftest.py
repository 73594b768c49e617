"""Where the reference models' tests run: on a CPU (plain or emulating a GPU) always, on CUDA where there is one."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from cudagraph_doctor.graph.emulated import EmulatedBackend
from cudagraph_doctor.reference_models.decode import PRESETS, DecoderConfig
from cudagraph_doctor.reference_models.engine import ReferenceEngine

GPU = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")]


@dataclass(frozen=True)
class Place:
    """A device, a dtype, and how far from the float64 result an operator may be there."""

    device: str
    dtype: torch.dtype
    error: float
    """Bound on ||out - reference|| / ||reference||."""

    def randn(self, *shape: int, seed: int) -> torch.Tensor:
        """Fresh random numbers, the same on every device."""
        return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(self.device, self.dtype)

    def ints(self, values: list[int] | list[list[int]], dtype: torch.dtype = torch.int32) -> torch.Tensor:
        """A tensor of integers on the device."""
        return torch.tensor(values, dtype=dtype, device=self.device)

    def poison(self) -> None:
        """Leave NaNs in the memory that the next allocations will be given."""
        if self.device == "cuda":
            held = [torch.full((size,), float("nan"), device="cuda") for size in (2**8, 2**12, 2**16, 2**19, 2**22)]
            del held


@pytest.fixture(
    params=[
        Place("cpu:0", torch.float32, 1e-6),
        Place("cpu:0", torch.bfloat16, 1e-2),
        pytest.param(Place("cuda", torch.bfloat16, 1e-2), marks=GPU),
    ],
    ids=["cpu-float32", "cpu-bfloat16", "cuda-bfloat16"],
)
def place(request: pytest.FixtureRequest) -> Place:
    """Each device and dtype in turn."""
    chosen: Place = request.param
    return chosen


@pytest.fixture
def cuda() -> Place:
    """A GPU; for tests that carry the marker themselves."""
    return Place("cuda", torch.bfloat16, 1e-2)


@dataclass(frozen=True)
class World:
    """A device on which graphs can be captured: a GPU, or the emulation of one."""

    device: str
    dtype: torch.dtype
    error: float
    """Bound on how far padded rows may be from unpadded ones, relative to the norm."""

    @property
    def model(self) -> tuple[DecoderConfig, str, torch.dtype, int]:
        """What the targets' constructors take, for a small model."""
        return PRESETS["tiny"], self.device, self.dtype, 0

    def differs(self, a: torch.Tensor, b: torch.Tensor) -> bool:
        """Whether two results are further apart than rounding explains."""
        return not (a.double() - b.double()).norm() <= self.error * b.double().norm()  # NaN differs


@pytest.fixture(params=["emulated", pytest.param("cuda", marks=GPU)])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """Each kind in turn, its hooks in."""
    if request.param == "cuda":
        yield World("cuda", torch.bfloat16, 2e-2)
        return
    with EmulatedBackend().installed():
        yield World("cpu:0", torch.float32, 1e-5)


Steps = list[dict[str, torch.Tensor]]


@pytest.fixture
def late_steps() -> Callable[[type[ReferenceEngine]], tuple[Steps, Steps]]:
    """Plays steps twice on a device that starts each replay late: waiting for every step, and running ahead."""

    def play(kind: type[ReferenceEngine]) -> tuple[Steps, Steps]:
        engine = kind(PRESETS["tiny"], "cuda", torch.bfloat16, 0)
        passes: list[Steps] = []
        for run_ahead in (False, True):
            engine.reset()
            torch.cuda.synchronize()
            passes.append([])
            for i in range(10):
                torch.cuda._sleep(40_000_000)  # about 20 ms: much longer than the host takes for a step
                passes[-1].append(engine.step(i, 4))
                if not run_ahead:
                    torch.cuda.synchronize()
            torch.cuda.synchronize()
        return passes[0], passes[1]

    return play


@dataclass(frozen=True)
class Played:
    """How the steps of a loop by graph differed from eager, each from the same state. Lists of booleans, one a step."""

    old: list[bool]
    """The graph captured before all steps."""
    fresh: list[bool]
    """A graph captured for the step."""
    padding: list[bool]
    """Whether the step had padding rows."""


def play_loop(loop: Any, world: World, order: list[tuple[int, int]], bucket: int = 4) -> Played:
    """Play (step, rows) eagerly and by graph, staged as the loop stages; compare live rows and unreserved state."""
    watched = {**loop.state(), "lm_head.weight": loop.model.lm_head.weight}
    reserved = loop.reserved() if hasattr(loop, "reserved") else {}

    def state() -> dict[str, torch.Tensor]:
        copies = {name: tensor.clone() for name, tensor in watched.items()}
        for name, rows in reserved.items():
            copies[name][rows] = 0
        return copies

    def capture(values: Any, draw: Any) -> tuple[torch.cuda.CUDAGraph, Any, dict[str, torch.Tensor]]:
        static = loop.static_inputs(bucket)
        loop.update(static, values)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            loop.forward(static)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        held.append([getattr(static, name, None) for name in dir(static)])  # what is rebound later stays mapped
        random.setstate(draw)
        with torch.cuda.graph(graph):
            outputs = loop.forward(static)
        return graph, static, outputs

    def run(step: Callable[[], dict[str, torch.Tensor]]) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        for name, tensor in watched.items():
            tensor.copy_(before[name])
        random.setstate(draws[0])
        torch.cuda.set_rng_state(draws[1])
        logits = step()["logits"][:rows].clone()
        return logits, state()

    def replay(captured: tuple[torch.cuda.CUDAGraph, Any, dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        graph, static, outputs = captured
        loop.update(static, fresh)
        graph.replay()
        return outputs

    held: list[Any] = []
    random.seed(7)
    first = loop.at_capture(bucket) if hasattr(loop, "at_capture") else loop.next_inputs(30, bucket)
    old = capture(first, random.getstate())
    played = Played([], [], [])
    loop.reset()
    for step, rows in order:
        fresh = loop.next_inputs(step, rows)
        before = {name: tensor.clone() for name, tensor in watched.items()}
        draws = random.getstate(), torch.cuda.get_rng_state()
        logits, truth = run(lambda: loop.forward(fresh))  # noqa: B023
        drawn = random.getstate()
        new = capture(loop.next_inputs(step, rows), draws[0])
        for captured, verdicts in ((old, played.old), (new, played.fresh)):
            got, left = run(lambda: replay(captured))  # noqa: B023
            verdicts.append(
                world.differs(got, logits) or any(world.differs(left[name], truth[name]) for name in watched)
            )
        played.padding.append(rows < bucket)
        for name, tensor in watched.items():
            tensor.copy_(truth[name])
        random.setstate(drawn)
    return played


@pytest.fixture
def played(world: World) -> Callable[[Any], Played]:
    """Plays a loop through batch sizes that shrink and grow, over block boundaries, and a change of weights."""
    order = [(0, 4), (1, 3), (2, 3), (3, 4), (4, 3), (5, 4)]
    return lambda kind: play_loop(kind(*world.model), world, order)
