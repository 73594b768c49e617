"""What a session notes while the capturing code runs: places, open captures, failures."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from cudagraph_doctor.findings import Location
from cudagraph_doctor.graph.callsite import Line
from cudagraph_doctor.graph.illegal import Kind
from cudagraph_doctor.observation.cuda_errors import kind_of_call
from cudagraph_doctor.observation.ledger import Ledger
from cudagraph_doctor.observation.model import Operation, ToldBy


@dataclass(frozen=True, slots=True)
class Site:
    """What is done where: the name of an operation and the user's lines that lead to it, innermost first."""

    name: str
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Failure:
    """The first thing that went wrong in a capture, as it was noted."""

    operation: Operation | None
    site: Site | None
    told_by: ToldBy
    error: BaseException | None
    """None where only the status of the capture changed."""
    returns_nothing: bool = False
    """It can be left out without a value in its place."""


@dataclass(eq=False, slots=True)
class Window:
    """A capture that is open."""

    index: int
    ledger: Ledger
    error_mode: str
    opened_at: Location | None
    thread: int = field(default_factory=threading.get_ident)
    counts: Counter[Site] = field(default_factory=Counter)
    position: int = 0
    launches: int = 0
    nodes: int | None = None
    made_outside: set[int] = field(default_factory=set)
    """Addresses of memory that work outside of the capture made from nothing since it was opened."""


@dataclass(frozen=True, slots=True)
class FailedCall:
    """A call of CUDA that returned an error about captures."""

    name: str
    code: int
    lines: tuple[Line, ...]
    """The user's lines that led to it, innermost first."""
    capture: int
    position: int
    module: str
    thread: str
    """Name of the thread that called, if that was not the one that captures."""

    @property
    def operation(self) -> Operation:
        """The same for a report."""
        places = [line.location() for line in self.lines]
        kind = kind_of_call(self.name)
        return Operation(
            name=self.name,
            kind=Kind.OTHER_THREAD if self.thread else kind,
            location=places[0] if places else None,
            callers=tuple(places[1:]),
            capture=self.capture,
            position=self.position,
            module=self.module,
            thread=self.thread,
            detail=f"{kind}" if self.thread else "",
        )


@dataclass(frozen=True, slots=True)
class HostSource:
    """A copy from host memory, and whether that is still there."""

    operation: Operation
    is_gone: Callable[[], bool]
