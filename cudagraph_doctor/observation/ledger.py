"""Who waits for whom while a capture is open: which streams it has taken in, and which forks are never joined.

Handles and counts only, no torch: each stream knows how much of the others' work it is behind.
"""

from __future__ import annotations

from dataclasses import dataclass

from cudagraph_doctor.graph.callsite import Line


@dataclass(frozen=True, slots=True)
class Fork:
    """A stream that an event drew into the capture."""

    stream: int
    position: int
    """In the order of execution of the capture."""
    lines: tuple[Line, ...]
    """Where that was, innermost first."""
    call: str
    """"Stream.wait_stream", "Event.wait"."""
    module: str = ""


class Ledger:
    """The streams and events of one capture.

    Args:
        origin: handle of the stream that the capture began on.
        counts: whether `work` is told of; if not, each fork is taken to be given some right away.
    """

    def __init__(self, origin: int, counts: bool = True) -> None:
        self.origin = origin
        self._at_first = 0 if counts else 1
        self.forks: dict[int, Fork] = {}
        self._issued: dict[int, int] = {origin: 0}
        """Stream -> how much was issued to it."""
        self._behind: dict[int, dict[int, int]] = {origin: {}}
        """Stream -> how much of each stream's work its next work comes after."""
        self._events: dict[int, tuple[object, dict[int, int] | None]] = {}
        """Identity of an event -> itself (kept, so that no other gets its identity) and what it marks."""

    def captures(self, stream: int) -> bool:
        """Whether work on the stream goes into the capture."""
        return stream in self._behind

    def work(self, stream: int) -> None:
        """Something was issued to the stream."""
        if stream in self._behind:
            self._issued[stream] += 1

    def record(self, event: object, stream: int) -> None:
        """The event was recorded on the stream."""
        marked = {**self._behind[stream], stream: self._issued[stream]} if stream in self._behind else None
        self._events[id(event)] = (event, marked)

    def is_foreign(self, event: object, stream: int) -> bool:
        """Whether this wait would tie the capture to work outside of it."""
        return stream in self._behind and self._events.get(id(event), (None, None))[1] is None

    def wait(self, event: object, fork: Fork) -> None:
        """`fork.stream` waits for the event: a fork if it takes no part yet, else a join."""
        marked = self._events.get(id(event), (None, None))[1]
        if marked is None:
            return
        if fork.stream not in self._behind:
            self._behind[fork.stream], self._issued[fork.stream] = {}, self._at_first
            self.forks[fork.stream] = fork
        behind = self._behind[fork.stream]
        for other, count in marked.items():
            behind[other] = max(count, behind.get(other, 0))

    def unjoined(self) -> list[Fork]:
        """Forks whose last work nothing on the capture's own stream comes after, in order."""
        joined = self._behind[self.origin]
        return [fork for stream, fork in self.forks.items() if self._issued[stream] > joined.get(stream, 0)]
