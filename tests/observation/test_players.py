"""Targets that are made to capture, again and again, from the same beginning."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from cudagraph_doctor.errors import Inconclusive
from cudagraph_doctor.graph.emulated import EmulatedBackend
from cudagraph_doctor.observation.players import EnginePlayer, LoadingPlayer, LoopPlayer, RunnerPlayer, cause, player_of
from cudagraph_doctor.settings import Settings

SETTINGS = Settings("capture")


class Loop:
    buckets = (1, 2, 4)

    def __init__(self, device: str) -> None:
        self.device = device
        self.seen: list[tuple[int, float, bool]] = []
        self.resets = 0

    def next_inputs(self, step: int, n: int) -> torch.Tensor:
        return torch.full((n,), float(step), device=self.device)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append((len(x), 0.0, torch.cuda.is_current_stream_capturing()))
        return x * 2

    def reset(self) -> None:
        self.resets += 1
        self.seen.clear()


class WithRunner(Loop):
    def graphed(self) -> Callable[[torch.Tensor], torch.Tensor]:
        graph, static = torch.cuda.CUDAGraph(), torch.zeros(4, device=self.device)
        with torch.cuda.graph(graph):
            out = self.forward(static)

        def run(x: torch.Tensor) -> torch.Tensor:
            graph.replay()
            return out[: len(x)]

        return run


class Engine:
    batch_sizes = (2, 3)

    def __init__(self, device: str) -> None:
        self.device, self.on, self.captured, self.steps = device, False, 0, 0

    def reset(self) -> None:
        self.steps = 0

    def graphs(self, on: bool) -> None:
        self.on = on

    def step(self, i: int, n: int) -> torch.Tensor:
        self.steps += 1
        if self.on and self.captured < 2:
            self.capture()
        return torch.zeros(n, device=self.device)

    def capture(self) -> None:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            torch.zeros(1, device=self.device).add_(1)
        self.captured += 1


@pytest.fixture
def backend() -> Iterator[EmulatedBackend]:
    made = EmulatedBackend()
    with made.installed():
        yield made


def player(target: Any, backend: EmulatedBackend, load: Any = None, settings: Settings = SETTINGS) -> Any:
    before = len(backend.log.graphs)
    return player_of(target, backend, settings, load, lambda: len(backend.log.graphs) - before)


def test_each_form_has_its_player(backend: EmulatedBackend) -> None:
    for make, kind in ((Loop, LoopPlayer), (WithRunner, RunnerPlayer), (Engine, EnginePlayer)):
        assert type(player(make(backend.device), backend)) is kind


def test_a_loop_is_warmed_up_and_captured_largest_bucket_first(backend: EmulatedBackend) -> None:
    loop = Loop(backend.device)
    plays = player(loop, backend)
    for _ in range(2):
        plays.capture()
        assert [(rows, capturing) for rows, _, capturing in loop.seen] == [
            (rows, capturing) for rows in (4, 2, 1) for capturing in (False, False, True)
        ]
    assert loop.resets == 2 and len(backend.log.graphs) == 6
    plays.eager_step(1)
    assert loop.seen[-1][0] == 1
    plays.serve(1)


def test_buckets_are_chosen_by_the_settings(backend: EmulatedBackend) -> None:
    loop = Loop(backend.device)
    player(loop, backend, settings=Settings("capture", buckets=(2,))).capture()
    assert {rows for rows, _, _ in loop.seen} == {2}
    with pytest.raises(Inconclusive, match="no step of the plan"):
        player(loop, backend, settings=Settings("capture", batch_sizes=(9,)))


def test_a_runner_is_made_anew_each_time(backend: EmulatedBackend) -> None:
    plays = player(WithRunner(backend.device), backend)
    plays.capture()
    plays.capture()
    assert len(backend.log.graphs) == 2
    plays.eager_step(1)
    plays.serve(1)


def test_an_engine_that_records_lazily_captures_in_its_first_steps_then_in_a_new_one(backend: EmulatedBackend) -> None:
    first, second = Engine(backend.device), Engine(backend.device)
    opened = 0
    plays: Any = player_of(first, backend, SETTINGS, lambda: second, lambda: len(backend.log.graphs) - opened)
    plays.capture()
    assert (first.captured, first.steps, second.captured) == (2, 2, 0) and plays.roots() == {"": first}
    opened = len(backend.log.graphs)
    plays.capture()
    assert second.captured == 2 and plays.roots() == {"": second}
    plays.eager_step(1)
    plays.serve(1)
    assert second.on


def test_an_engine_that_never_captures(backend: EmulatedBackend) -> None:
    class Eager(Engine):
        def capture(self) -> None:
            pass

    with pytest.raises(Inconclusive, match="captured nothing"):
        player(Eager(backend.device), backend, lambda: Eager(backend.device)).capture()


def test_recapture_comes_before_steps(backend: EmulatedBackend) -> None:
    class Recaptures(Engine):
        def recapture(self) -> None:
            self.capture()

    engine = Recaptures(backend.device)
    player(engine, backend).capture()
    assert engine.steps == 0


def test_a_target_that_is_never_made() -> None:
    made: list[int] = []
    plays = LoadingPlayer(lambda: made.append(1))
    plays.capture()
    plays.eager_step(1)
    plays.serve(1)
    assert made == [1] and plays.roots() == {}


def test_the_targets_own_error_is_taken_out_of_ours() -> None:
    inner, ours = KeyError("x"), Inconclusive("cannot be captured", fix="mend it")
    ours.__cause__ = inner
    assert cause(ours) is inner and cause(inner) is inner
    bare = Inconclusive("nothing", fix="mend it")
    assert cause(bare) is bare
