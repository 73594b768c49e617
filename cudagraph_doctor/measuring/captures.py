"""Captures every key of a target, the largest first, and stops before the device's memory runs out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from cudagraph_doctor.graph import memory
from cudagraph_doctor.graph.backend import Backend, LiveGraph
from cudagraph_doctor.measuring.visits import Key, number
from cudagraph_doctor.proof.loop import LoopSubject
from cudagraph_doctor.proof.subject import Planned, Subject


class NoRoom(Exception):
    """One more capture would leave less memory free than the margin. Never leaves this package."""

    def __init__(self, free: int) -> None:
        super().__init__(f"{free} bytes are free")


@dataclass(slots=True)
class Room:
    """Free device memory, looked at before each capture.

    Args:
        backend: where it is.
        margin: bytes that stay free.
    """

    backend: Backend
    margin: int
    most: int = 0
    """Bytes that a capture has taken at most."""
    beside: dict[int, int] = field(default_factory=dict)
    """Key -> device memory that its graph took beside the allocator's."""

    @contextmanager
    def around(self, key: int) -> Iterator[None]:
        """Around a capture of a LoopTarget's key, whose graph is launched once: only then it is all there.

        Raises NoRoom if as much as the largest capture so far took would not be left beside the margin.
        """
        free = self.backend.free_bytes()
        if free - self.most < self.margin:
            raise NoRoom(free)
        captured: list[LiveGraph] = []
        before = _beside_the_allocator(self.backend)
        with self.backend.log.listening(captured=captured.append):
            yield
        for live in captured:
            graph = live.graph()
            if graph is not None:
                graph.replay()
        self.backend.synchronize()
        after = _beside_the_allocator(self.backend)
        if before is not None and after is not None:
            self.beside[key] = max(0, after - before)
        self.most = max(self.most, free - self.backend.free_bytes())


def _beside_the_allocator(backend: Backend) -> int | None:
    """Device memory in use that torch's allocator does not hold; None where that means nothing."""
    if backend.name != "cuda":
        return None
    free, total = torch.cuda.mem_get_info()
    return total - free - torch.cuda.memory_reserved()


def capture_all(subject: Subject, steps: Sequence[Planned], room: Room) -> list[int]:
    """Have every key captured; a LoopTarget's on one pool.

    Returns:
        The keys that there was no room for.
    """
    if isinstance(subject, LoopSubject) and subject.form == "loop":
        subject.pool = torch.cuda.graph_pool_handle()
        subject.around_capture = room.around
    try:
        subject.capture_all(steps, lambda _at: None)
    except NoRoom:
        return [size for size in sizes(steps) if not has_graph(subject, steps, size)]
    return []


def sizes(steps: Sequence[Planned]) -> list[int]:
    """Sizes of the keys of these steps, ascending."""
    return sorted({size for at in steps if (size := number(at.key)) is not None})


def has_graph(subject: Subject, steps: Sequence[Planned], size: int) -> bool:
    """Whether a graph was captured for a LoopTarget's key."""
    return any(subject.held(at) for at in steps if number(at.key) == size)


def graphs_of(subject: Subject, key: Key) -> list[LiveGraph]:
    """The graphs that the key's steps replay, each once."""
    found = {held.live.ordinal: held.live for at in key.steps for held in subject.held(at)}
    return [found[ordinal] for ordinal in sorted(found)]


def pool_bytes(pools: set[str]) -> int:
    """Bytes of the segments of these pools, on the current device."""
    device = torch.cuda.current_device()
    return sum(s.bytes for s in memory.snapshot() if s.pool in pools and s.device == device)
