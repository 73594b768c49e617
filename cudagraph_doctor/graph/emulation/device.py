"""The emulated device: its memory, its current stream, the capture that is under way, its generator."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from cudagraph_doctor.graph.backend import GraphLog
from cudagraph_doctor.graph.emulation.faults import not_emulated
from cudagraph_doctor.graph.emulation.generators import default_generator
from cudagraph_doctor.graph.emulation.memory import Heap

if TYPE_CHECKING:
    from cudagraph_doctor.graph.emulation.capture import Capture

DEFAULT_STREAM = 0
"""Handle of the default stream."""


def _truth() -> None:
    """Nothing else is answered."""


class EmulatedDevice:
    """State that the stand-ins for `torch.cuda` share. One capture at a time, as in CUDA's global mode."""

    def __init__(self) -> None:
        self.heap = Heap()
        self.log = GraphLog()
        self.generator = default_generator()
        self.capture: Capture | None = None
        self.answer: Callable[[], bool | None] = _truth
        """What to answer who asks whether the current stream captures."""
        self.moving_to_host = False
        """The user asks for a copy on the host right now."""
        self._current = threading.local()
        self._stream_handles = itertools.count(0x1000, 0x10)
        self._pools = itertools.count(1)

    @property
    def current_stream(self) -> int:
        """Handle of the calling thread's current stream."""
        return getattr(self._current, "handle", DEFAULT_STREAM)

    @current_stream.setter
    def current_stream(self, handle: int) -> None:
        self._current.handle = handle

    def new_stream(self) -> int:
        """Handle of a new stream."""
        return next(self._stream_handles)

    def new_pool(self) -> tuple[int, int]:
        """Identity of a new memory pool, as `torch.cuda.graph_pool_handle` gives it."""
        return (0, next(self._pools))

    def says_capturing(self) -> bool:
        """Whether the current stream captures, as far as the user is told."""
        answer = self.answer()
        return self.recording() is not None if answer is None else answer

    def abandon_capture(self) -> None:
        """Put back what an unfinished capture changed, and forget it."""
        if self.capture is not None:
            self.capture.close()
            self.capture = None

    def recording(self) -> Capture | None:
        """The capture that the current stream takes part in; None if its work runs as usual."""
        capture = self.capture
        return capture if capture is not None and self.current_stream in capture.tails else None

    def forbid_in_capture(self, call: str, stream: int | None = None) -> None:
        """Raise as CUDA does for a call that waits for the device or asks about it while a capture is under way.

        Args:
            call: what was called, for the message.
            stream: the stream it concerns; None for the whole device.
        """
        capture = self.capture
        if capture is None:
            return
        if capture.error_mode != "global" and threading.get_ident() != capture.thread:
            return
        if capture.error_mode == "relaxed" and stream is not None and stream not in capture.tails:
            return
        raise capture.fail(900, call)

    def host_reads(self, call: str) -> None:
        """The host is about to read device memory, which waits for the current stream."""
        capture = self.recording()
        if capture is not None:
            raise capture.fail(900, call)


def total_memory_bytes() -> int:
    """All of the machine's memory: the emulated device has no other."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def free_memory_bytes() -> int:
    """Memory that the machine could still give."""
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


_active: list[EmulatedDevice] = []


def activate(device: EmulatedDevice) -> None:
    """Let the stand-ins act on this device."""
    _active.append(device)


def deactivate() -> None:
    """Undo the last `activate`."""
    _active.pop()


def active() -> EmulatedDevice:
    """The device that the stand-ins act on. Raises Inconclusive if the emulation is not in place any more."""
    if not _active:
        raise not_emulated("a stand-in for torch.cuda used after the run")
    return _active[-1]
