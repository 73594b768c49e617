"""Where this process has memory of the host that addresses may lead to: its heap, stacks, libraries. From /proc."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

_MAPS = Path("/proc/self/maps")
_LOW = 0x550000000000
"""Below, only the heap counts: there CUDA reserves addresses, which numbers packed into a word may happen to be."""
_NEAR = 1 << 26
"""Mappings that are no further apart are told as one."""


def host_memory(maps: Path = _MAPS) -> tuple[tuple[int, int], ...]:
    """(first address, one past the last) of each stretch, ascending; empty where the system does not tell."""
    try:
        return _stretches(maps.read_text().splitlines())
    except OSError:
        return ()


def _stretches(lines: Iterable[str]) -> tuple[tuple[int, int], ...]:
    found: list[tuple[int, int]] = []
    for line in lines:
        start, stop = (int(text, 16) for text in line.split(maxsplit=1)[0].split("-"))
        if (start < _LOW and "[heap]" not in line) or "[vsyscall]" in line:
            continue
        if found and start - found[-1][1] <= _NEAR:
            found[-1] = (found[-1][0], stop)
        else:
            found.append((start, stop))
    return tuple(found)
