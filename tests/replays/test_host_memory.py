"""Where the process has its memory, from /proc/self/maps."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import pytest

from cudagraph_doctor.replays.host_memory import host_memory

MAPS = """\
00400000-00420000 r-xp 00000000 00:00 0 /usr/bin/python3
4ed00000-50d00000 rw-p 00000000 00:00 0 [heap]
200000000-10000000000 ---p 00000000 00:00 0
7f0000000000-7f0000100000 rw-p 00000000 00:00 0
7f0000200000-7f0000300000 r-xp 00000000 00:00 0 /usr/lib/libc.so.6
7ffc00000000-7ffc00100000 rw-p 00000000 00:00 0 [stack]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]
"""


def test_the_heap_counts_wherever_it_is_and_neighbours_are_one(tmp_path: Path) -> None:
    file = tmp_path / "maps"
    file.write_text(MAPS)
    assert host_memory(file) == (
        (0x4ED00000, 0x50D00000),
        (0x7F0000000000, 0x7F0000300000),
        (0x7FFC00000000, 0x7FFC00100000),
    )


def test_a_system_that_does_not_tell(tmp_path: Path) -> None:
    assert host_memory(tmp_path / "none") == ()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_of_this_process_is_in_it() -> None:
    held = ctypes.create_string_buffer(1 << 24)
    assert any(start <= ctypes.addressof(held) < stop for start, stop in host_memory())
