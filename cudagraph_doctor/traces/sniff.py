"""What is this file? By its first bytes, never by its name. What is no trace is refused here, in words."""

from __future__ import annotations

import gzip
import zlib
from enum import Enum
from pathlib import Path

from cudagraph_doctor.errors import Inconclusive, UsageError

_SQLITE = b"SQLite format 3\0"
_GZIP = b"\x1f\x8b"
_NSYS_REP = (b"NVIDIA Tegra Profiler Report", b"QDSTRM")
EXPORT = "nsys export --type sqlite --force-overwrite true --output"


class Form(Enum):
    """Forms of traces that can be opened."""

    SQLITE = "nsys SQLite export"
    NSYS_REP = "nsys report"
    JSON = "torch.profiler JSON"
    JSON_GZ = "torch.profiler JSON, gzipped"


def sniff(path: Path) -> Form:
    """The form of a trace.

    Raises:
        UsageError: it is not there, is a folder, or is nothing that could be a trace.
        Inconclusive: it is empty.
    """
    if path.is_dir():
        raise UsageError(
            f'"{path}" is a folder.', fix=f"Name the trace files in it: cudagraph-doctor buckets {path}/*.sqlite"
        )
    try:
        with path.open("rb") as file:
            head = file.read(4096)
    except OSError as error:
        raise UsageError(
            f'The trace "{path}" cannot be read: {error.strerror}.', fix="Name a file that can be read."
        ) from None
    if not head:
        raise Inconclusive(f'The trace "{path}" is empty (0 bytes).', fix="Record or export it again.")
    if head.startswith(_SQLITE):
        return Form.SQLITE
    if head.startswith(_NSYS_REP):
        return Form.NSYS_REP
    if head.startswith(_GZIP):
        head = _first_bytes_unpacked(path)
        if head.startswith((_SQLITE, *_NSYS_REP)):
            raise UsageError(f'"{path}" is a gzipped nsys file.', fix=f"Unpack it first: gunzip --keep {path}")
        form = Form.JSON_GZ
    else:
        form = Form.JSON
    if head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"["):
        return form
    raise UsageError(
        f'"{path}" is no trace: neither an nsys SQLite export nor a torch.profiler JSON.',
        seen=f"it begins with {head[:16]!r}",
        fix=f"Export an nsys report with `{EXPORT} trace.sqlite trace.nsys-rep`, or save a torch.profiler trace with "
        "export_chrome_trace.",
    )


def _first_bytes_unpacked(path: Path) -> bytes:
    try:
        with gzip.open(path, "rb") as file:
            return file.read(4096)
    except (OSError, EOFError, zlib.error):
        raise Inconclusive(
            f'The trace "{path}" is gzipped and cannot be unpacked: it is cut short or damaged.',
            fix="Copy or record it again.",
        ) from None
