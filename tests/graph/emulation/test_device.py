"""The state that the stand-ins share."""

from __future__ import annotations

import threading

import pytest

from cudagraph_doctor.errors import Inconclusive
from cudagraph_doctor.graph.emulation.capture import Capture
from cudagraph_doctor.graph.emulation.device import (
    EmulatedDevice,
    activate,
    active,
    deactivate,
    free_memory_bytes,
    total_memory_bytes,
)


def test_stand_ins_need_an_active_device() -> None:
    with pytest.raises(Inconclusive, match="after the run"):
        active()
    device = EmulatedDevice()
    activate(device)
    try:
        assert active() is device
    finally:
        deactivate()
    with pytest.raises(Inconclusive):
        active()


def test_the_current_stream_is_each_threads_own() -> None:
    device = EmulatedDevice()
    device.current_stream = device.new_stream()
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.append(device.current_stream))
    thread.start()
    thread.join()
    assert seen == [0] and device.current_stream != 0


def test_streams_and_pools_are_new_each_time() -> None:
    device = EmulatedDevice()
    assert device.new_stream() != device.new_stream() and device.new_pool() != device.new_pool()


def in_capture(error_mode: str) -> EmulatedDevice:
    device = EmulatedDevice()
    device.current_stream = device.new_stream()
    device.capture = Capture(device, "0.1", [], error_mode)
    return device


def test_without_a_capture_nothing_is_forbidden() -> None:
    EmulatedDevice().forbid_in_capture("torch.cuda.synchronize()")
    EmulatedDevice().host_reads("print")


@pytest.mark.parametrize(
    ("mode", "on_capture_stream", "forbidden"),
    [("global", True, True), ("global", False, True), ("relaxed", True, True), ("relaxed", False, False)],
)
def test_calls_that_wait_in_a_capture(mode: str, on_capture_stream: bool, forbidden: bool) -> None:
    device = in_capture(mode)
    stream = device.current_stream if on_capture_stream else 99
    assert device.capture is not None
    try:
        if forbidden:
            with pytest.raises(RuntimeError, match="not permitted"):
                device.forbid_in_capture("Stream.query()", stream)
            assert device.capture.invalid is not None
        else:
            device.forbid_in_capture("Stream.query()", stream)
            assert device.capture.invalid is None
    finally:
        device.capture.close()


def test_only_streams_of_the_capture_are_recording() -> None:
    device = in_capture("global")
    assert device.capture is not None
    try:
        assert device.recording() is device.capture
        device.current_stream = 99
        assert device.recording() is None
        device.host_reads("a stream outside of the capture may be waited for")
    finally:
        device.capture.close()


def test_memory_of_the_machine() -> None:
    assert 0 < free_memory_bytes() < total_memory_bytes()
