"""What a session notes while the capturing code runs: places, open captures, failures."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
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
    made_pinned: set[int] = field(default_factory=set)
    """Addresses of page-locked memory that was allocated since it was opened."""
    made_outside: set[int] = field(default_factory=set)
    """Addresses of memory that work outside of the capture made from nothing since it was opened."""


_LIBRARYS = (Kind.SYNCHRONISATION, Kind.QUERY, Kind.BLOCKING_COPY)
"""What torch offers too: a call that no hook on torch told of is a library's."""


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
        """The same for a report, where nothing of torch's is known to have made the call."""
        places = [line.location() for line in self.lines]
        kind = kind_of_call(self.name)
        librarys = kind in _LIBRARYS
        return Operation(
            name=self.name,
            kind=Kind.OTHER_THREAD if self.thread else Kind.LIBRARY_CALL if librarys else kind,
            location=places[0] if places else None,
            callers=tuple(places[1:]),
            capture=self.capture,
            position=self.position,
            module=self.module,
            thread=self.thread,
            detail=f"{kind}" if self.thread or librarys else "",
        )

    def is_within(self, failure: Failure) -> bool:
        """Whether it was made in the course of what failed, as far as their lines tell."""
        site = failure.site
        return not self.lines or (site is not None and bool(site.lines) and site.lines[0] in self.lines)


def first_cause(calls: Sequence[FailedCall]) -> FailedCall | None:
    """The first call that failed; one that only found the capture broken (901) is told if there is no other."""
    return next((call for call in calls if call.code != 901), calls[0] if calls else None)


@dataclass(frozen=True, slots=True)
class HostSource:
    """A copy from host memory, and whether that is still there."""

    operation: Operation
    is_gone: Callable[[], bool]
