"""Both forms of target played through one interface; a LoopTarget without a runner gets captured on a GPU."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from cudagraph_doctor.recording.ranges import Ranges
from cudagraph_doctor.recording.runner import EngineRunner, OwnRunner, runner_of


class Engine:
    def __init__(self) -> None:
        self.log: list[Any] = []

    def graphs(self, on: bool) -> None:
        self.log.append(("graphs", on))

    def reset(self) -> None:
        self.log.append("reset")

    def step(self, i: int, n: int) -> int:
        self.log.append((i, n))
        return n


def test_engine() -> None:
    engine = Engine()
    runner = runner_of(engine, "engine", Ranges(False, True), [])
    assert isinstance(runner, EngineRunner) and runner.step(3, 5) == 5
    assert engine.log == [("graphs", True), "reset", (3, 5)]


@pytest.mark.parametrize(
    ("key", "bucket"), [(8, 8), ((8, "odd"), 8), ("8", None), ((), None), (True, None), (None, None)]
)
def test_bucket_by_key(key: object, bucket: int | None) -> None:
    engine = Engine()
    engine.key = lambda i, n: key  # type: ignore[attr-defined]
    assert EngineRunner(engine).bucket(0, 5) == bucket
    assert EngineRunner(Engine()).bucket(0, 5) is None


def test_a_loop_with_its_own_runner() -> None:
    played: list[Any] = []
    target = SimpleNamespace(
        buckets=[1, 4],
        graphed=lambda: played.append,
        reset=lambda: played.append("reset"),
        next_inputs=lambda i, n: (i, n),
    )
    runner = runner_of(target, "loop", Ranges(False, True), [])
    assert isinstance(runner, OwnRunner)
    runner.step(2, 3)
    assert played == ["reset", (2, 3)]
    assert (runner.bucket(0, 3), runner.bucket(0, 9)) == (4, None)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_a_plain_loop_is_captured() -> None:
    class Loop:
        buckets = (1, 4)
        total = torch.zeros((), device="cuda")

        def next_inputs(self, step: int, n: int) -> dict[str, torch.Tensor]:
            return {"x": torch.full((n, 2 + step % 2), float(step))}

        def forward(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
            self.total += inputs["x"].sum()
            return inputs["x"] * 2

        def reset(self) -> None:
            self.total.zero_()

    loop = Loop()
    runner = runner_of(loop, "loop", Ranges(False, True), [(0, 1), (1, 3), (2, 9)])
    assert loop.total.item() == 0
    runner.step(1, 3)
    assert loop.total.item() == 9 + 3  # the padding row repeats the last live one
    runner.step(2, 9)  # above the largest bucket: eager
    assert loop.total.item() == 9 + 3 + 36
