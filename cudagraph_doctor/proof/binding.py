"""Which line of the user's puts another tensor in the place of one? A run is traced line by line."""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

import torch

from cudagraph_doctor.blame import is_users
from cudagraph_doctor.findings import Location
from cudagraph_doctor.proof.arms import Arm, Arms
from cudagraph_doctor.proof.subject import Planned
from cudagraph_doctor.walk import follow

_Line = tuple[CodeType, int]


def bound_at(arms: Arms, at: Planned, name: str) -> Location | None:
    """The line after which the path `name` leads to other memory: of a graph step's staging, else of the step itself.

    The step is run again, from the saved state. None if no line of the user's does it.
    """

    def now() -> torch.Tensor | None:
        found = follow(arms.subject.roots(), name)
        return arms.subject.static_now(at).get(name) if found is None else found

    for arm in (Arm.REPLAYED, Arm.EAGER):
        watch = _Watch(now, torch.Tensor.data_ptr)
        arms.run(arm, at, around=watch.tracing())
        if watch.found is not None:
            return _location(watch.found)
    return None


def kept_at(arms: Arms, name: str, run: Callable[[], object]) -> Location | None:
    """The line after which the path `name` leads to another object while `run` runs, in whatever memory that lies.

    None if no line of the user's does it.
    """
    watch = _Watch(lambda: follow(arms.subject.roots(), name), id)
    with watch.tracing():
        run()
    return _location(watch.found) if watch.found else None


def _location(line: _Line) -> Location:
    code, number = line
    text = linecache.getline(code.co_filename, number).strip()
    return Location(os.path.realpath(code.co_filename), number, code.co_qualname, text, "bound")


class _Watch:
    """Looks before each line of the user's where a name leads to; the line that ran last has led it elsewhere.

    Args:
        look: finds the tensor.
        place: what is another number for a tensor elsewhere. Tensors are held, so that none comes back.
    """

    def __init__(self, look: Callable[[], torch.Tensor | None], place: Callable[[torch.Tensor], int]) -> None:
        self.found: _Line | None = None
        self._look = look
        self._place = place
        self._at: tuple[torch.Tensor, int] | None = None
        self._last: _Line | None = None

    @contextmanager
    def tracing(self) -> Iterator[None]:
        """Inside the block, this thread's lines are watched; whoever traced it before goes on after."""
        self._check()
        earlier = sys.gettrace()
        sys.settrace(self._called)
        try:
            yield
        finally:
            sys.settrace(earlier)

    def _called(self, frame: FrameType, event: str, arg: Any) -> Any:
        return self._stepped if is_users(frame) else None

    def _stepped(self, frame: FrameType, event: str, arg: Any) -> Any:
        self._check()
        self._last = (frame.f_code, frame.f_lineno)
        if event == "return":  # the line that called goes on, and may bind what it got
            caller = next(_users(frame.f_back), None)
            self._last = (caller.f_code, caller.f_lineno) if caller else None
        return self._stepped

    def _check(self) -> None:
        tensor = self._look()
        if tensor is None:
            return
        now = (tensor, self._place(tensor))
        if self._last is not None and (self._at is None or now[1] != self._at[1]):
            self.found = self._last
        self._at = now


def _users(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        if is_users(frame):
            yield frame
        frame = frame.f_back
