"""Stand-ins for CUDA streams and events. Work runs at once; what is kept is who waits for whom in a capture."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import torch

from cudagraph_doctor.graph.emulation.device import DEFAULT_STREAM, active

if TYPE_CHECKING:
    from cudagraph_doctor.graph.emulation.capture import Capture


class Stream:
    """Stand-in for `torch.cuda.Stream` and `ExternalStream`. Streams with the same handle are equal."""

    def __init__(self, device: Any = None, priority: int = 0, **known: int) -> None:
        """`known` is how torch names an existing stream: `stream_id` or `stream_ptr`."""
        handle = known.get("stream_ptr", known.get("stream_id"))
        self.cuda_stream: int = active().new_stream() if handle is None else handle
        self.stream_id = self.cuda_stream
        self.priority = priority
        self.device = torch.device("cpu", 0)
        self.device_index = 0
        self.device_type = 1
        self._before: list[int] = []

    def wait_event(self, event: Event) -> None:
        """Later work on this stream waits for the event; in a capture this stream joins it."""
        event.wait(self)

    def wait_stream(self, stream: Stream) -> None:
        """Later work on this stream waits for all earlier work on `stream`."""
        self.wait_event(stream.record_event())

    def record_event(self, event: Event | None = None) -> Event:
        """Record an event (a new one by default) behind the work issued so far."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def query(self) -> bool:
        """True: work has always run already. Raises in a capture, as under CUDA."""
        active().forbid_in_capture("Stream.query()", self.cuda_stream)
        return True

    def synchronize(self) -> None:
        """Nothing to wait for. Raises in a capture, as under CUDA."""
        active().forbid_in_capture("Stream.synchronize()", self.cuda_stream)

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.cuda_stream)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.cuda_stream == self.cuda_stream

    def __hash__(self) -> int:
        return hash(self.cuda_stream)

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device=cpu:0 cuda_stream={self.cuda_stream:#x} (emulated)>"

    def __enter__(self) -> Stream:
        self._before.append(active().current_stream)
        active().current_stream = self.cuda_stream
        return self

    def __exit__(self, *exc: object) -> None:
        active().current_stream = self._before.pop()


class ExternalStream(Stream):
    """Stand-in for `torch.cuda.ExternalStream`."""

    def __init__(self, stream_ptr: int, device: Any = None) -> None:
        super().__init__(stream_ptr=stream_ptr)


class Event:
    """Stand-in for `torch.cuda.Event`."""

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False
    ) -> None:
        self.cuda_event = id(self)
        self.device = torch.device("cpu", 0)
        self._timed = enable_timing
        self._external = external
        self._seconds: float | None = None
        self._capture: Capture | None = None
        self._tail: frozenset[int] = frozenset()

    def record(self, stream: Stream | None = None) -> None:
        """Mark the work issued to the stream so far."""
        handle = active().current_stream if stream is None else stream.cuda_stream
        capture = active().capture
        self._seconds = time.perf_counter()
        self._capture = None
        if capture is not None and handle in capture.tails and not self._external:
            self._capture, self._tail = capture, capture.tails[handle]

    def wait(self, stream: Stream | None = None) -> None:
        """Later work on the stream waits for what was marked; a fork or a join, in a capture."""
        handle = active().current_stream if stream is None else stream.cuda_stream
        capture = active().capture
        if capture is None or self._seconds is None or self._external:
            return
        if self._capture is capture:
            capture.join(handle, self._tail)
        elif handle in capture.tails:
            raise capture.fail(905, "the event was recorded outside of this capture")

    def query(self) -> bool:
        """True: work has always run already. Raises in a capture, as under CUDA."""
        active().forbid_in_capture("Event.query()", self._stream())
        return True

    def synchronize(self) -> None:
        """Nothing to wait for. Raises in a capture, as under CUDA."""
        active().forbid_in_capture("Event.synchronize()", self._stream())

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds on the host between the two records."""
        if not (self._timed and end_event._timed):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._seconds is None or end_event._seconds is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        active().forbid_in_capture("Event.elapsed_time()")
        return 1000.0 * (end_event._seconds - self._seconds)

    def _stream(self) -> int | None:
        """A stream that is not in any capture, unless the event was recorded in the present one."""
        return None if self._capture is not None and self._capture is active().capture else -1


class StreamContext:
    """Stand-in for `torch.cuda.stream(s)`: `s` is current inside the block; None changes nothing."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream
        self._before = DEFAULT_STREAM

    def __enter__(self) -> None:
        self._before = active().current_stream
        if self.stream is not None:
            active().current_stream = self.stream.cuda_stream

    def __exit__(self, *exc: object) -> None:
        if self.stream is not None:
            active().current_stream = self._before


def stream_of(handle: int) -> Stream:
    """The stream with this handle."""
    return Stream(stream_id=handle)


def current_stream(device: Any = None) -> Stream:
    """Stand-in for `torch.cuda.current_stream`."""
    return stream_of(active().current_stream)


def default_stream(device: Any = None) -> Stream:
    """Stand-in for `torch.cuda.default_stream`."""
    return stream_of(DEFAULT_STREAM)


def set_stream(stream: Stream | None) -> None:
    """Stand-in for `torch.cuda.set_stream`."""
    if stream is not None:
        active().current_stream = stream.cuda_stream


def synchronize(device: Any = None) -> None:
    """Stand-in for `torch.cuda.synchronize`: work has always run already; raises in a capture."""
    active().forbid_in_capture("torch.cuda.synchronize()")
