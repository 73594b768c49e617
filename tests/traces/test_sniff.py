"""A file is known by its first bytes; what is no trace is refused in words, each with its exit code."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from cudagraph_doctor.errors import DoctorError, Inconclusive, UsageError
from cudagraph_doctor.traces.sniff import Form, sniff

SQLITE = b"SQLite format 3\0" + bytes(84)


@pytest.mark.parametrize(
    ("content", "form"),
    [
        (SQLITE, Form.SQLITE),
        (b"NVIDIA Tegra Profiler Report 2025.3", Form.NSYS_REP),
        (b'\xef\xbb\xbf\n {"traceEvents": []}', Form.JSON),
        (b"[]", Form.JSON),
        (gzip.compress(b'{"traceEvents": []}', mtime=0), Form.JSON_GZ),
    ],
    ids=["sqlite", "nsys-rep", "json with a BOM", "list", "gzipped json"],
)
def test_known_by_its_bytes(content: bytes, form: Form, tmp_path: Path) -> None:
    file = tmp_path / "trace.txt"
    file.write_bytes(content)
    assert sniff(file) is form


@pytest.mark.parametrize(
    ("content", "error", "words"),
    [
        (b"", Inconclusive, "is empty"),
        (b"hello", UsageError, "is no trace"),
        (b"\x7fELF\x02", UsageError, "is no trace"),
        (gzip.compress(b"hello", mtime=0), UsageError, "is no trace"),
        (gzip.compress(SQLITE, mtime=0), UsageError, "gzipped nsys file"),
        (b"\x1f\x8b\x08\x00broken", Inconclusive, "cannot be unpacked"),
        (gzip.compress(b'{"traceEvents": []}' * 100, mtime=0)[:20], Inconclusive, "cannot be unpacked"),
    ],
    ids=["empty", "text", "elf", "gzipped text", "gzipped sqlite", "no gzip body", "gzip cut short"],
)
def test_refused(content: bytes, error: type[DoctorError], words: str, tmp_path: Path) -> None:
    file = tmp_path / "trace"
    file.write_bytes(content)
    with pytest.raises(error, match=words):
        sniff(file)


def test_a_folder_and_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a folder"):
        sniff(tmp_path)
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        sniff(tmp_path / "nothing.sqlite")
