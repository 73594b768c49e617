"""The order of runs, and what is made of them: made-up targets of which the end-to-end tests have none."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import torch

from cudagraph_doctor.errors import Inconclusive
from cudagraph_doctor.graph.emulated import EmulatedBackend
from cudagraph_doctor.graph.emulation import watch
from cudagraph_doctor.graph.emulation.faults import cuda_error, not_emulated
from cudagraph_doctor.graph.illegal import Kind
from cudagraph_doctor.observation import observe
from cudagraph_doctor.observation.model import Observation, ToldBy
from cudagraph_doctor.observation.observe import Observer
from cudagraph_doctor.progress import Silent
from tests.observation.conftest import Player

DEVICE = "cpu:0"


def seen(make: Callable[[EmulatedBackend], Player]) -> tuple[Observation, Player]:
    backend = EmulatedBackend()
    with backend.installed():
        player = make(backend)
        return Observer(lambda opened: player, backend, Silent()).observe(), player


def test_a_sound_body_is_captured_twice_and_run_dry_twice() -> None:
    x = [None]

    def make(backend: EmulatedBackend) -> Player:
        x[0] = torch.zeros(2, device=DEVICE)  # type: ignore[call-overload]
        return Player(lambda: x[0].add_(1))  # type: ignore[attr-defined]

    found, player = seen(make)
    assert player.runs == 4 and found.complete and (found.refusals, found.empty, found.legal) == ((), (), ())
    assert [(attempt.watched, attempt.nodes) for attempt in found.attempts] == [(False, (1,)), (True, (1,))]
    assert found.captures == 1 and found.operations == 1 and found.instrument == "there is no CUDA"


@pytest.mark.parametrize("takes", [True, False])
def test_a_pageable_copy_that_a_capture_takes(monkeypatch: pytest.MonkeyPatch, takes: bool) -> None:
    """Older torch lets it into the graph."""
    monkeypatch.setattr(watch, "check", lambda *arguments: None)
    monkeypatch.setattr(observe, "_TAKES_PAGEABLE", takes)

    def make(backend: EmulatedBackend) -> Player:
        x, host = torch.zeros(2, device=DEVICE), torch.ones(2)
        return Player(lambda: x.copy_(host))

    found, _ = seen(make)
    taken, legal = (found.host_sources, found.legal) if takes else (found.legal, found.host_sources)
    assert [operation.kind for operation in taken] == [Kind.PAGEABLE_COPY] and legal == () == found.refusals


def test_an_operator_that_no_table_knows_is_served_all_the_same() -> None:
    def make(backend: EmulatedBackend) -> Player:
        x = torch.ones(2, device=DEVICE)
        library = torch.library.Library("observe_test", "FRAGMENT")
        library.define("solve(Tensor x) -> Tensor")

        def solve(x: torch.Tensor) -> torch.Tensor:
            capture = backend._device.capture
            if capture is not None:
                raise capture.fail(900, "a solver that waits")
            return x * 3

        library.impl("solve", solve, "CPU")

        def body() -> None:
            y = torch.ops.observe_test.solve(x)
            y.nonzero()

        player = Player(body)
        player.library = library  # type: ignore[attr-defined]
        return player

    found, _ = seen(make)
    first, second = found.refusals
    assert first.operation and first.operation.name == "observe_test.solve.default"
    assert first.operation.kind is Kind.LIBRARY_CALL and first.code == 900
    assert second.operation and second.operation.kind is Kind.SHAPE_FROM_VALUES
    assert found.complete


def test_what_the_emulation_does_not_reach_is_no_refusal() -> None:
    def make(backend: EmulatedBackend) -> Player:
        x = torch.ones(2, device=DEVICE)
        older = torch.cuda.CUDAGraph()
        with torch.cuda.graph(older):
            x.add_(1)

        def body() -> None:
            older.replay()
            x.nonzero()

        return Player(body)

    found, _ = seen(make)
    assert [refusal.operation and refusal.operation.kind for refusal in found.refusals] == [Kind.SHAPE_FROM_VALUES]
    assert found.complete and ["CUDAGraph.replay() inside a capture" in what for what in found.out_of_reach] == [True]


def test_nothing_but_what_the_emulation_does_not_reach() -> None:
    def make(backend: EmulatedBackend) -> Player:
        x = torch.ones(2, device=DEVICE)
        older = torch.cuda.CUDAGraph()
        with torch.cuda.graph(older):
            x.add_(1)

        def body() -> None:
            older.replay()
            x.mul_(2)

        return Player(body)

    found, _ = seen(make)
    assert (found.refusals, found.first_uses, found.suspected) == ((), (), ()) and found.complete
    assert len(found.out_of_reach) == 1


def test_a_bare_exception_about_captures_is_told_by_its_traceback() -> None:
    def make(backend: EmulatedBackend) -> Player:
        def body() -> None:
            if backend._device.capture is not None:
                raise cuda_error(900)

        return Player(body)

    found, _ = seen(make)
    [refusal] = found.refusals
    assert refusal.told_by is ToldBy.TRACEBACK and refusal.operation is not None
    assert refusal.operation.location and refusal.operation.location.code == "raise cuda_error(900)"
    assert not found.complete


def test_what_is_no_matter_of_captures_is_raised() -> None:
    def make(backend: EmulatedBackend) -> Player:
        def body() -> None:
            if backend._device.capture is not None:
                raise KeyError("mine")

        return Player(body)

    with pytest.raises(KeyError, match="mine"):
        seen(make)


def test_a_target_that_opens_no_capture() -> None:
    class Idle(Player):
        def capture(self) -> None:
            pass

    with pytest.raises(Inconclusive, match="captured nothing"):
        seen(lambda backend: Idle(lambda: None))


def test_a_stand_in_that_is_missing_stays_inconclusive() -> None:
    def make(backend: EmulatedBackend) -> Player:
        def body() -> None:
            raise not_emulated("torch.cuda.something()")

        return Player(body)

    with pytest.raises(Inconclusive, match="not emulated"):
        seen(make)


def test_random_numbers_go_on_as_if_nothing_had_been() -> None:
    draws: list[list[float]] = []

    def make(backend: EmulatedBackend) -> Player:
        x = torch.zeros(2, device=DEVICE)

        def body() -> None:
            draws.append(torch.rand(2).tolist())
            x.add_(1)

        return Player(body)

    torch.manual_seed(1)
    seen(make)
    assert len(draws) == 4 and all(draw == draws[0] for draw in draws)
    assert torch.rand(2).tolist() == draws[0]


def test_many_empty_graphs_of_one_line_are_one() -> None:
    class Twice(Player):
        def capture(self) -> Any:
            for _ in range(2):
                super().capture()

    found, _ = seen(lambda backend: Twice(lambda: None))
    [empty] = found.empty
    assert empty.launches == 0 and found.captures == 2


def test_what_breaks_the_capture_behind_torchs_back_lies_between_two_lines() -> None:
    def make(backend: EmulatedBackend) -> Player:
        x = torch.ones(2, device=DEVICE)

        def body() -> None:
            x.add_(1)
            if backend._device.capture is not None:
                backend._device.capture.fail(900, "cudaMalloc")  # its result is ignored
            x.mul_(2)

        return Player(body)

    found, _ = seen(make)
    [refusal] = found.refusals
    assert refusal.told_by is ToldBy.STATUS and refusal.code == 901 and refusal.without_threads is False
    assert refusal.operation and refusal.operation.location and refusal.operation.location.code == "x.mul_(2)"
    line = refusal.operation.location.line
    assert refusal.operation.detail == f"after line {line - 3} and before this one" and not found.complete
    assert found.first_uses == ()


def test_after_another_thread_the_rest_is_looked_for_without_threads() -> None:
    def make(backend: EmulatedBackend) -> Player:
        x, event = torch.ones(2, device=DEVICE), torch.cuda.Event()

        def poll() -> None:
            with suppress(RuntimeError):
                event.query()

        def body() -> None:
            thread = threading.Thread(target=poll, name="poller")
            thread.start()
            thread.join()
            x.nonzero()

        return Player(body)

    found, _ = seen(make)
    first, second = found.refusals
    assert first.without_threads and first.operation and first.operation.thread == "poller"
    assert second.operation and second.operation.kind is Kind.SHAPE_FROM_VALUES and found.complete


def test_a_thread_that_hit_only_the_dry_run_is_suspected() -> None:
    def make(backend: EmulatedBackend) -> Player:
        event, turns = torch.cuda.Event(), iter((False, True, False, False))

        def body() -> None:
            torch.zeros(1, device=DEVICE).add_(1)
            if next(turns):
                thread = threading.Thread(target=event.query, name="poller")
                thread.start()
                thread.join()

        return Player(body)

    found, _ = seen(make)
    assert found.refusals == () and [operation.thread for operation in found.suspected] == ["poller"]


def test_an_error_from_inside_a_library_has_the_line_that_called_it_and_its_module() -> None:
    class Layer(torch.nn.Module):
        def __init__(self, backend: EmulatedBackend) -> None:
            super().__init__()
            self.backend = backend

        def forward(self) -> None:
            if self.backend._device.capture is not None:
                call_library()

    def call_library() -> None:
        inner = cuda_error(900)  # raised and caught where no frame of the user's is
        raise ValueError("the compiler failed") from inner

    found, _ = seen(lambda backend: Player(Layer(backend)))
    [refusal] = found.refusals
    assert refusal.code == 900 and refusal.operation and refusal.operation.location
    assert refusal.operation.location.code.startswith("raise ValueError") and refusal.operation.module == "Layer"
    assert refusal.told_by is ToldBy.TRACEBACK


def test_nothing_of_a_failed_capture_is_kept_alive() -> None:
    ends: list[weakref.ref[torch.Tensor]] = []

    def make(backend: EmulatedBackend) -> Player:
        def body() -> None:
            x = torch.ones(2, device=DEVICE)
            ends.append(weakref.ref(x))
            x.nonzero()

        return Player(body)

    backend = EmulatedBackend()
    with backend.installed():
        player = make(backend)
        observer = Observer(lambda opened: player, backend, Silent())
        found = observer.observe()
        gc.collect()
        assert len(ends) > 3 and [end() for end in ends] == [None] * len(ends)
    assert len(found.refusals) == 1
