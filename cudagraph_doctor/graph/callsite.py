"""Whose line of code is running: the innermost frame that is neither torch's nor the doctor's."""

from __future__ import annotations

import linecache
import os
import sys
from types import FrameType

from cudagraph_doctor.findings import Location

_PASSED_THROUGH = ("torch", "contextlib", "functools")
"""Libraries that call on behalf of somebody: the line looked for is their caller's."""
_OURS = "cudagraph_doctor"
_THE_USERS = "cudagraph_doctor.reference_models"
"""Bundled targets are looked at as a user's."""


def _in_package(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def callsite() -> Location | None:
    """The user's line that led here, None if the doctor itself (a check, the proof) made the call.

    The calling module's own frames are skipped first: a hook asks who called it.
    """
    frame: FrameType | None = sys._getframe(1)
    hook = frame.f_globals.get("__name__", "") if frame else ""
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module != hook and not any(_in_package(module, package) for package in _PASSED_THROUGH):
            break
        frame = frame.f_back
    if frame is None or (_in_package(module, _OURS) and not _in_package(module, _THE_USERS)):
        return None
    code = frame.f_code
    line = linecache.getline(code.co_filename, frame.f_lineno).strip()
    return Location(os.path.realpath(code.co_filename), frame.f_lineno, code.co_name, line)
