"""Tiny targets in both forms, and backends with their hooks in: every test that takes `backend` runs on both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from cudagraph_doctor.checks.eager_diff import subject_of
from cudagraph_doctor.graph.backend import Backend
from cudagraph_doctor.proof.arms import Arms
from cudagraph_doctor.proof.subject import Planned

SPARE = 8
"""The slot that padding rows write."""

Inputs = dict[str, torch.Tensor]


class TinyLoop:
    """A LoopTarget: each row adds `x` to a slot of the cache, and puts out what is there then, times a weight."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.buckets = [2, 4]
        self.cache = torch.zeros(SPARE + 1, 2, device=device)
        self.weight = torch.full((2,), 3.0, device=device)

    def next_inputs(self, step: int, n: int) -> Inputs:
        """Rows of other slots each step."""
        rows = torch.arange(n, device=self.device)
        return {"x": (rows + step + 1).float(), "slots": (rows + 3 * step) % SPARE}

    def static_inputs(self, bucket: int) -> Inputs:
        """Padding."""
        device = self.device
        return {"x": torch.zeros(bucket, device=device), "slots": torch.full((bucket,), SPARE, device=device)}

    def update(self, static: Inputs, fresh: Inputs) -> None:
        """Stage, with padding behind it."""
        static["slots"].fill_(SPARE)
        for name, value in fresh.items():
            static[name][: len(value)].copy_(value)

    def forward(self, inputs: Inputs) -> dict[str, torch.Tensor]:
        """One step."""
        self.cache.index_add_(0, inputs["slots"], inputs["x"][:, None].expand(-1, 2))
        return {"y": self.cache[inputs["slots"]] * self.weight}

    def reset(self) -> None:
        """An empty cache."""
        self.cache.zero_()


class TinyRunner(TinyLoop):
    """The same with a runner of its own; the tests look into its closure."""

    def graphed(self) -> Callable[[Inputs], dict[str, torch.Tensor]]:
        """Captures now, or a bucket at its first call if `lazy`."""
        static: dict[int, Inputs] = {}
        captured: dict[int, Any] = {}

        def record(bucket: int) -> None:
            static[bucket] = self.static_inputs(bucket)
            captured[bucket] = capture(lambda: self.forward(static[bucket]))

        def run(fresh: Inputs) -> dict[str, torch.Tensor]:
            n = len(fresh["x"])
            bucket = next(bucket for bucket in self.buckets if bucket >= n)
            if bucket not in captured:
                record(bucket)
            self.update(static[bucket], fresh)
            graph, outputs = captured[bucket]
            graph.replay()
            return {name: value[:n] for name, value in outputs.items()}

        if not getattr(self, "lazy", False):
            for bucket in reversed(self.buckets):
                record(bucket)
        return run


class TinyEngine:
    """An EngineTarget that stages into one set of buffers and replays graphs of its own."""

    batch_sizes = (1, 2, 3, 4)

    def __init__(self, device: str) -> None:
        self.loop = TinyLoop(device)
        self.use_graphs = False
        self.recapture()

    def recapture(self) -> None:
        """Both buckets, anew, over new buffers."""
        self.captured = {}
        self.static = {bucket: self.loop.static_inputs(bucket) for bucket in self.loop.buckets}
        for bucket in reversed(self.loop.buckets):
            self.captured[bucket] = capture(lambda bucket=bucket: self.loop.forward(self.static[bucket]))  # type: ignore[misc]

    def key(self, i: int, n: int) -> int:
        """The bucket."""
        return next(bucket for bucket in self.loop.buckets if bucket >= n)

    def step(self, i: int, n: int) -> dict[str, torch.Tensor]:
        """Step `i` on `n` rows."""
        fresh = self.loop.next_inputs(i, n)
        if not self.use_graphs:
            return self.loop.forward(fresh)
        self.stage(self.static[self.key(i, n)], fresh)
        graph, outputs = self.captured[self.key(i, n)]
        graph.replay()
        return {name: value[:n].clone() for name, value in outputs.items()}

    def stage(self, static: Inputs, fresh: Inputs) -> None:
        """As the loop does."""
        self.loop.update(static, fresh)

    def graphs(self, on: bool) -> None:
        """The switch."""
        self.use_graphs = on

    def reset(self) -> None:
        """An empty cache."""
        self.loop.reset()


def capture(step: Callable[[], Any]) -> tuple[Any, Any]:
    """Warm up on a side stream and capture: (graph, static outputs)."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = step()
    return graph, outputs


@pytest.fixture
def emulated() -> Iterator[Backend]:
    """The emulated backend, its stand-ins in."""
    from cudagraph_doctor.graph.emulated import EmulatedBackend

    backend = EmulatedBackend()
    with backend.installed():
        yield backend


@pytest.fixture
def cuda() -> Iterator[Backend]:
    """The CUDA backend, its hooks in; skips, with the reason, where there is none."""
    from cudagraph_doctor.graph.cuda import CudaBackend

    if reason := CudaBackend.why_unusable():
        pytest.skip(reason)
    backend = CudaBackend()
    with backend.installed():
        yield backend
    torch.cuda.synchronize()


@pytest.fixture(params=["emulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def backend(request: pytest.FixtureRequest) -> Backend:
    """One after the other."""
    found: Backend = request.getfixturevalue(request.param)
    return found


def variant(base: type, backend: Backend, members: dict[str, Any]) -> Any:
    """An instance of `base` with some members replaced: functions become methods, other values attributes."""
    methods = {name: member for name, member in members.items() if callable(member)}
    made = type(base.__name__, (base,), methods)(backend.device)
    for name, member in members.items():
        if not callable(member):
            setattr(made, name, member)
    return made


@pytest.fixture
def loop_target(backend: Backend) -> Callable[..., Any]:
    """Makes a `TinyLoop`; members given by name replace its own."""
    return lambda **members: variant(TinyLoop, backend, members)


@pytest.fixture
def runner_target(backend: Backend) -> Callable[..., Any]:
    """Makes a `TinyRunner`; members given by name replace its own."""
    return lambda **members: variant(TinyRunner, backend, members)


@pytest.fixture
def engine_target(backend: Backend) -> Callable[..., Any]:
    """Makes a `TinyEngine`; members given by name replace its own."""
    return lambda **members: variant(TinyEngine, backend, members)


@pytest.fixture
def arms_of(backend: Backend) -> Callable[..., tuple[Arms, list[Planned]]]:
    """Makes a target's arms, brings them to before the first step of a plan, and returns both."""

    def made(target: Any, *sizes: int) -> tuple[Arms, list[Planned]]:
        subject = subject_of(target, backend)
        arms = Arms(subject, backend)
        plan = subject.plan(0, (), sizes, False)
        arms.discover(plan)
        arms.capture_all(plan)
        arms.discover_graphs(plan)
        arms.begin(plan)
        return arms, plan

    return made
