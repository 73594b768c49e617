"""Streams and events: identity, contexts, order in a capture."""

from __future__ import annotations

import pytest
import torch

from cudagraph_doctor.graph.emulated import EmulatedBackend

DEVICE = "cpu:0"


def test_streams_are_equal_by_handle(backend: EmulatedBackend) -> None:
    a, b = torch.cuda.Stream(), torch.cuda.Stream()
    assert a != b and a == torch.cuda.Stream(stream_id=a.stream_id) and len({a, b, a}) == 2
    assert torch.cuda.ExternalStream(a.cuda_stream) == a and a != 3
    assert torch.cuda.current_stream() == torch.cuda.default_stream() != a
    assert a.__cuda_stream__() == (0, a.cuda_stream) and a.device == torch.device(DEVICE)


def test_the_current_stream(backend: EmulatedBackend) -> None:
    a, b = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(a):
        with torch.cuda.stream(None):
            assert torch.cuda.current_stream() == a
        with b, a:
            assert torch.cuda.current_stream() == a
        assert torch.cuda.current_stream() == a
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    torch.cuda.set_stream(b)
    torch.cuda.set_stream(None)  # type: ignore[arg-type]
    assert torch.cuda.current_stream() == b


def test_the_current_stream_is_restored_after_an_error(backend: EmulatedBackend) -> None:
    with pytest.raises(KeyError), torch.cuda.stream(torch.cuda.Stream()):
        raise KeyError
    assert torch.cuda.current_stream() == torch.cuda.default_stream()


def test_work_has_always_run_outside_of_captures(backend: EmulatedBackend) -> None:
    stream = torch.cuda.Stream()
    event = stream.record_event()
    event.synchronize()
    stream.synchronize()
    torch.cuda.synchronize()
    assert stream.query() and event.query()


def test_elapsed_time(backend: EmulatedBackend) -> None:
    first, second = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    with pytest.raises(ValueError, match="must be recorded"):
        first.elapsed_time(second)
    first.record()
    second.record()
    assert first.elapsed_time(second) >= 0
    with pytest.raises(ValueError, match="enable_timing"):
        first.elapsed_time(torch.cuda.Event())


def test_an_event_that_was_never_recorded_orders_nothing(backend: EmulatedBackend) -> None:
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        torch.cuda.Event().wait()


def test_an_external_event_is_no_dependency(backend: EmulatedBackend) -> None:
    event = torch.cuda.Event(external=True)
    event.record()
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        event.wait()
        event.record()


def test_an_event_of_an_earlier_capture_is_from_outside(backend: EmulatedBackend) -> None:
    event = torch.cuda.Event()
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        event.record()
    with pytest.raises(RuntimeError, match="previous error") as caught, torch.cuda.graph(torch.cuda.CUDAGraph()):
        event.wait()
    assert "uncaptured work in another stream" in str(caught.value.__context__)


def test_a_stream_that_waits_for_the_capture_joins_it(backend: EmulatedBackend) -> None:
    side, event = torch.cuda.Stream(), torch.cuda.Event()
    seen = []
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        with torch.cuda.stream(side):
            seen.append(torch.cuda.is_current_stream_capturing())
        event.record()
        side.wait_event(event)
        with torch.cuda.stream(side):
            seen.append(torch.cuda.is_current_stream_capturing())
    assert seen == [False, True]


def test_an_event_recorded_anew_outside_of_the_capture(backend: EmulatedBackend) -> None:
    x = torch.zeros(1, device=DEVICE)
    side, event = torch.cuda.Stream(), torch.cuda.Event()
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        event.record()
    event.record(side)
    side.wait_event(event)
    with torch.cuda.stream(side):
        x.add_(1)
    assert x.item() == 1
