"""Reads the stacks that faulthandler writes when a hang is ended: which of the user's lines was it at? No torch."""

from __future__ import annotations

import os
import re
import sysconfig
from pathlib import Path

from cudagraph_doctor.blame import owner

_FRAME = re.compile(r'^  File "(?P<file>.+)", line (?P<line>\d+) in (?P<function>.+)$', re.M)
_OURS = str(Path(__file__).parent)
_STANDARD_LIBRARY = sysconfig.get_path("stdlib")
_INSTALLED = {Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")}
_THE_USERS = (os.path.join(_OURS, "reference_models"), os.path.join(_OURS, "skeletons"))
"""Bundled targets are looked at as a user's."""


def stands_at(stacks: str) -> str:
    """`hangs.py:6 in forward`: the innermost line of the user's, the current thread's if it has one; "" if none has.

    Args:
        stacks: of all threads, innermost frame first, as faulthandler writes them.
    """
    others, _, current = stacks.partition("Current thread")
    for frame in (*_FRAME.finditer(current), *_FRAME.finditer(others)):
        if _is_the_users(frame["file"]):
            return f"{os.path.relpath(frame['file'])}:{frame['line']} in {frame['function']}"
    return ""


def _is_the_users(file: str) -> bool:
    if file.startswith(_OURS + os.sep):
        return file.startswith(_THE_USERS)
    for folder in _INSTALLED & set(Path(file).parents):  # below the standard library, perhaps
        return owner(Path(file).relative_to(folder).parts[0].removesuffix(".py")) == "user"
    return not file.startswith((_STANDARD_LIBRARY, "<"))
