"""Objects that must not be destroyed, not even when the interpreter ends: torch ends the process from some destructors.

Known ones, in torch up to 2.11: a MemPool, while the allocator takes a capture to be under way (which it does for ever
after a failed one: pytorch/pytorch#180395); a CUDAGraph whose capture could not begin. And the allocators keep a
pointer to the CUDAGraph that captures.
"""

from __future__ import annotations

import ctypes
from typing import TypeVar

T = TypeVar("T")


def hold(thing: T) -> T:
    """`thing`, which is never destroyed from now on, unless it is let go as often as it was held."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
    return thing


def let_go(thing: object) -> None:
    """Undo one `hold`."""
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(thing))
