"""Which weights autocast is seen to cast, and where the copies are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch

from cudagraph_doctor.graph.emulated import EmulatedBackend
from cudagraph_doctor.graph.origins import ModulePath
from cudagraph_doctor.observation.casts import CastWatch
from cudagraph_doctor.observation.model import StrayCasts
from cudagraph_doctor.observation.session import Session
from cudagraph_doctor.observation.values import Kept
from cudagraph_doctor.observation.windows import Windows

DEVICE = "cpu:0"
X = torch.ones(2, 4)


@pytest.fixture
def backend() -> Iterator[EmulatedBackend]:
    made = EmulatedBackend()
    with made.installed():
        yield made


def watch(backend: EmulatedBackend, body: Callable[[], Any]) -> CastWatch:
    """What was noted while the body ran, with captures that capture nothing."""
    session = Session(True, False, Kept(), ModulePath({}), backend.capture_status)
    with torch.no_grad(), Windows(session, backend).installed(), CastWatch(session, backend) as mode:
        body()
    made: CastWatch = mode
    return made


def strays(backend: EmulatedBackend, body: Callable[[], Any]) -> tuple[StrayCasts, ...]:
    return watch(backend, body).strays()


def capture() -> AbstractContextManager[Any]:
    context: AbstractContextManager[Any] = torch.cuda.graph(torch.cuda.CUDAGraph())
    return context


def autocast(**options: Any) -> torch.autocast:
    return torch.autocast("cpu", dtype=torch.bfloat16, **options)


def layer(**options: Any) -> torch.nn.Linear:
    return torch.nn.Linear(4, 4, device=DEVICE, **options)


def warmed(made: Callable[..., Any], **options: Any) -> Callable[[], None]:
    """One warm-up and a capture in one autocast."""

    def body() -> None:
        with autocast(**options):
            made(X.to(DEVICE))
            with capture():
                made(X.to(DEVICE))

    return body


def test_weights_that_were_cast_before_the_capture(backend: EmulatedBackend) -> None:
    [found] = strays(backend, warmed(layer()))
    assert (found.weights, found.captures, found.made_in_capture, found.gone) == (2, 1, False, True)
    assert found.opened and found.opened.code == "with capture():"
    assert found.made and found.made.code == "made(X.to(DEVICE))" == (found.read and found.read.code)
    assert found.read and found.made.line + 2 == found.read.line


@pytest.mark.parametrize("made", [layer().requires_grad_(False), layer().bfloat16()])
def test_what_autocast_does_not_keep(backend: EmulatedBackend, made: torch.nn.Linear) -> None:
    assert strays(backend, warmed(made)) == ()


def test_a_view_of_a_weight_is_not_kept(backend: EmulatedBackend) -> None:
    weight = torch.nn.Parameter(torch.ones(4, 4, device=DEVICE))
    view = weight.detach()[:2].requires_grad_()
    assert view.is_leaf and strays(backend, warmed(lambda x: torch.nn.functional.linear(x, view))) == ()


def test_with_the_cache_off_nothing_is_kept(backend: EmulatedBackend) -> None:
    assert strays(backend, warmed(layer(), cache_enabled=False)) == ()


def test_an_inner_autocast_keeps_as_long_as_the_outer_one_lasts(backend: EmulatedBackend) -> None:
    made = layer()

    def step(x: torch.Tensor) -> None:
        with autocast():
            made(x)

    def alone() -> None:
        step(X.to(DEVICE))
        with capture():
            step(X.to(DEVICE))

    [found] = strays(backend, warmed(step, enabled=False))
    assert found.weights == 2 and found.gone
    assert strays(backend, warmed(step, cache_enabled=False)) == ()  # inner ones take that over
    assert strays(backend, alone) == ()


def test_weights_of_the_host_do_not_count(backend: EmulatedBackend) -> None:
    made = torch.nn.Linear(4, 4)

    def body() -> None:
        with autocast():
            made(X)
            with capture():
                made(X)

    assert strays(backend, body) == ()


def test_casts_of_one_capture_that_another_reads(backend: EmulatedBackend) -> None:
    made = layer(bias=False)

    def body() -> None:
        with autocast():
            for _ in range(3):
                with capture():
                    made(X.to(DEVICE))

    [found] = strays(backend, body)
    assert (found.weights, found.captures, found.made_in_capture, found.gone) == (1, 2, True, True)


@pytest.mark.parametrize("replayed", [False, True])
def test_casts_of_a_capture_that_eager_code_reads(backend: EmulatedBackend, replayed: bool) -> None:
    made = layer(bias=False)

    def body() -> None:
        graph = torch.cuda.CUDAGraph()
        with autocast():
            with torch.cuda.graph(graph):
                made(X.to(DEVICE))
            if replayed:
                graph.replay()
            made(X.to(DEVICE))

    found = strays(backend, body)
    if replayed:
        assert found == ()
    else:
        assert [(one.captures, one.made_in_capture) for one in found] == [(0, True)]
        assert found[0].opened is None and found[0].read and found[0].read.code == "made(X.to(DEVICE))"


def test_a_cast_that_somebody_holds_is_not_gone(backend: EmulatedBackend) -> None:
    weight, held = torch.nn.Parameter(torch.ones(4, 4, device=DEVICE)), []

    def body() -> None:
        with autocast():
            held.append(weight.to(torch.bfloat16))
            with capture():
                held[0] + 1

    [found] = strays(backend, body)
    assert not found.gone and not found.made_in_capture
    held.clear()


def test_an_autocast_from_before(backend: EmulatedBackend) -> None:
    made = layer()
    assert not watch(backend, warmed(made)).from_before
    with autocast():
        made(X.to(DEVICE))
        noted = watch(backend, warmed(made))
    assert noted.from_before and noted.strays() == ()
    with autocast(cache_enabled=False):
        assert not watch(backend, warmed(made)).from_before
