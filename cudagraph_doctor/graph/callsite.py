"""Whose line of code is running: the innermost frame that is neither torch's nor the doctor's."""

from __future__ import annotations

import functools
import linecache
import os
import sys
from types import FrameType

from cudagraph_doctor.findings import Location

_PASSED_THROUGH = ("torch", "triton", "cuda", "contextlib", "functools", "cudagraph_doctor.graph")
"""Libraries that call on behalf of somebody, and our hooks in them: the line looked for is their caller's."""
_OURS = "cudagraph_doctor"
_THE_USERS = "cudagraph_doctor.reference_models"
"""Bundled targets are looked at as a user's."""


def _in_package(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def _passed_through(frame: FrameType, module: str) -> bool:
    """Also what is in no file: a dataclass's `__init__` ("<string>"), importlib ("<frozen ...>")."""
    return frame.f_code.co_filename.startswith("<") or any(_in_package(module, name) for name in _PASSED_THROUGH)


_real = functools.cache(os.path.realpath)


def callsite() -> Location | None:
    """The user's line that led to the calling hook, None if the doctor itself (a check, the proof) made the call."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if not _passed_through(frame, module):
            break
        frame = frame.f_back
    if frame is None or (_in_package(module, _OURS) and not _in_package(module, _THE_USERS)):
        return None
    code = frame.f_code
    line = linecache.getline(code.co_filename, frame.f_lineno).strip()
    return Location(_real(code.co_filename), frame.f_lineno, code.co_name, line)
