"""Whose line of code is running: the innermost frame that is neither torch's nor the doctor's."""

from __future__ import annotations

import functools
import linecache
import os
import sys
from dataclasses import dataclass
from types import FrameType

from cudagraph_doctor.blame import calls_compiled
from cudagraph_doctor.findings import Location

_PASSED_THROUGH = (
    *("torch", "triton", "cuda", "contextlib", "functools"),
    *("cudagraph_doctor.graph", "cudagraph_doctor.observation"),
)
"""Libraries that call on behalf of somebody, and our hooks in them: the line looked for is their caller's."""
_OURS = "cudagraph_doctor"
_THE_USERS = "cudagraph_doctor.reference_models"
"""Bundled targets are looked at as a user's."""


def _in_package(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


@functools.cache
def _module_passed_through(module: str) -> bool:
    return any(_in_package(module, name) for name in _PASSED_THROUGH)


@functools.cache
def _is_the_doctors(module: str) -> bool:
    return _in_package(module, _OURS) and not _in_package(module, _THE_USERS)


def _passed_through(frame: FrameType, module: str) -> bool:
    """Also what is in no file: a dataclass's `__init__` ("<string>"), importlib ("<frozen ...>")."""
    return _module_passed_through(module) or frame.f_code.co_filename.startswith("<")


_real = functools.cache(os.path.realpath)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the user's that is running; cheap to make and to compare."""

    file: str
    number: int
    function: str
    begins: int = 0
    """First line of the function: names are not unique."""

    def is_beside(self, other: Line) -> bool:
        """Whether both are in one function."""
        return (self.file, self.function, self.begins) == (other.file, other.function, other.begins)

    def location(self) -> Location:
        """The same with its source."""
        return Location(_real(self.file), self.number, self.function, linecache.getline(self.file, self.number).strip())


def callsites(limit: int = 8) -> tuple[Line, ...]:
    """The user's lines that led to the calling hook, innermost first; none if the doctor itself made the call.

    They end where the doctor called the user, after `limit` lines, or where the thread began.
    """
    lines: list[Line] = []
    frame, module = _behind_the_hook(sys._getframe(1)), ""
    while frame is not None and len(lines) < limit:
        callee, module = module, str(frame.f_globals.get("__name__", ""))
        if not _passed_through(frame, module) and not calls_compiled(frame, callee):
            if _is_the_doctors(module):
                break
            code = frame.f_code
            lines.append(Line(code.co_filename, frame.f_lineno, code.co_name, code.co_firstlineno))
        frame = frame.f_back
    return tuple(lines)


def _behind_the_hook(frame: FrameType | None) -> FrameType | None:
    """The first frame that is not the hook's own, wherever in the doctor the hook is written."""
    while frame is not None and frame.f_globals.get("__name__") == __name__:
        frame = frame.f_back
    hook = "" if frame is None else str(frame.f_globals.get("__name__", ""))
    while frame is not None and _is_the_doctors(hook) and frame.f_globals.get("__name__") == hook:
        frame = frame.f_back
    return frame


def callsite() -> Location | None:
    """The user's line that led to the calling hook, None if the doctor itself (a check, the proof) made the call."""
    lines = callsites(1)
    return lines[0].location() if lines else None
