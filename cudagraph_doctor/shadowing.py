"""Modules of the user's that took the name of one of the standard library: what breaks then breaks far away.

`types.py` beside a target is found before Python's own by whoever imports `types`, torch among them.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path


def loaded() -> dict[str, str]:
    """Name -> file of those that were imported in this process instead of the standard library's."""
    found = {}
    for name in sys.stdlib_module_names & sys.modules.keys():
        file = getattr(sys.modules[name], "__file__", None)
        if file and not _installed(file):
            found[name] = file
    return found


def in_the_way(folders: Iterable[str]) -> dict[str, str]:
    """Name -> file of those that an import would find in `folders` (as `sys.path`) before the standard library."""
    found: dict[str, str] = {}
    for folder in folders:
        if _installed(os.path.join(folder, "x.py")):
            break
        files = (path for path in Path(folder or ".").glob("*.py") if path.stem in sys.stdlib_module_names)
        found = {path.stem: str(path.absolute()) for path in files} | found
    return found


def hint(shadowing: dict[str, str]) -> str:
    """What to do about them, in sentences with a space before; "" if there are none."""
    return "".join(
        f' "{file}" shadows the module {name} of the standard library: rename it.'
        for name, file in sorted(shadowing.items())
    )


def _installed(file: str) -> bool:
    """Whether a file is Python's own or an installed package's (setuptools takes the place of distutils)."""
    path = os.path.realpath(file)
    own = (os.path.realpath(sysconfig.get_path(name)) + os.sep for name in ("stdlib", "platstdlib", "purelib"))
    return path.startswith(tuple(own)) or f"{os.sep}site-packages{os.sep}" in path or "dist-packages" in path
