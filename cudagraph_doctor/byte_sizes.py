"""Amounts of memory in words."""

from __future__ import annotations


def in_bytes(count: float) -> str:
    """`1.5 GiB`."""
    for unit in ("B", "KiB", "MiB"):
        if abs(count) < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} GiB"
