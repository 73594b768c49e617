"""torch.profiler (Kineto) traces -> the workspace: streamed, so that a file of gigabytes needs little memory.

AMD's traces have the same categories with `hip` names. A file is one process: GPU events name a device where CPU events
name a process, so several processes in one file could not be told apart; each rank writes its own.
"""

from __future__ import annotations

import codecs
import contextlib
import gzip
import re
import sqlite3
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

import ijson

from cudagraph_doctor.errors import Inconclusive, UsageError
from cudagraph_doctor.traces import labels
from cudagraph_doctor.traces.calls import Kind, kind_of
from cudagraph_doctor.traces.ranges import Range
from cudagraph_doctor.traces.source import CaptureLabel, Source

_PROCESS = 0
_CALLS = frozenset({"cuda_runtime", "cuda_driver", "hip_runtime", "runtime", "driver"})
_KERNELS = frozenset({"kernel", "concurrent_kernel", "Kernel"})
_COPIES = frozenset({"gpu_memcpy", "gpu_memset", "Memcpy", "Memset"})
_BATCH = 5_000
_HEAD_BYTES = 1 << 20
_RANK = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}\[\]]*"rank"\s*:\s*(\d{1,6})')
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_CALL = "INSERT INTO call (process, thread, start, end, kind, driver, correlation, result) VALUES (0,?,?,?,?,?,?,0)"
_ACTIVITY = "INSERT INTO activity VALUES (0,?1,?2,?2,?3,1,?4,?5,?6,?7,0,'',?8,0)"
_FIX = "Save the trace again, with prof.export_chrome_trace, and copy all of it."


def load(path: Path, database: sqlite3.Connection, own: labels.Family | None, gzipped: bool) -> Source:
    """Fill the workspace from a trace.

    Raises:
        UsageError: it is JSON of something else.
        Inconclusive: it is damaged or cut short, or holds no CUDA calls.
    """
    reader = _Reader(database, own)
    head, is_list = b"", False
    try:
        with _opened(path, gzipped) as file:
            head = file.read(_HEAD_BYTES)
            is_list = head.lstrip()[:1] == b"["
        with _opened(path, gzipped) as file:
            for event in _events(file, is_list):
                reader.take(event)
    except (ijson.JSONError, EOFError, OSError, zlib.error, UnicodeDecodeError) as error:
        looks_like_one = b'"traceEvents"' in head or b'"ph"' in head
        if isinstance(error, ijson.JSONError) and not reader.events and not looks_like_one:
            raise UsageError(f'"{path}" is no trace of torch.profiler.', seen=_short(error), fix=_FIX) from None
        raise Inconclusive(
            f'The trace "{path}" is damaged or cut short after {reader.events} events.', seen=_short(error), fix=_FIX
        ) from None
    reader.flush()
    if reader.events == 0 and not is_list and not _EVENTS.search(head):
        raise UsageError(f'"{path}" is JSON, but no trace: it has no list of traceEvents.', fix=_FIX)
    if reader.events == 0:
        raise Inconclusive(
            f'The trace "{path}" has no events: its list of them is empty.',
            fix="Run your steps inside the profiler's `with` block, and save the trace after it.",
        )
    if not reader.with_phase:
        raise UsageError(
            f'"{path}" is JSON, but no trace: none of the {reader.events} elements in its list is an event.', fix=_FIX
        )
    if not reader.cuda:
        raise Inconclusive(
            f'The trace "{path}" holds no CUDA calls ({reader.events} other events).',
            fix="Profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA].",
        )
    rank = _RANK.search(head)
    return reader.source(int(rank[1]) if rank else None)


@contextlib.contextmanager
def _opened(path: Path, gzipped: bool) -> Iterator[IO[bytes]]:
    """The file from its first character on: some editors put a byte order mark before it."""
    with gzip.open(path, "rb") if gzipped else path.open("rb") as opened:
        file = cast(IO[bytes], opened)
        if file.read(len(codecs.BOM_UTF8)) != codecs.BOM_UTF8:
            file.seek(0)
        yield file


def _events(file: IO[bytes], is_list: bool) -> Iterator[Any]:
    yield from ijson.items(file, "item" if is_list else "traceEvents.item", use_float=True, buf_size=1 << 16)


class _Reader:
    """Sorts events into the tables."""

    def __init__(self, database: sqlite3.Connection, own: labels.Family | None) -> None:
        self._database = database
        self._own = own
        self._calls: list[tuple[Any, ...]] = []
        self._activities: list[tuple[Any, ...]] = []
        self._threads: dict[tuple[str, str], int] = {}
        self._names: dict[str, int] = {}
        self._kinds: dict[str, Kind] = {}
        self.events = 0
        self.with_phase = 0
        self.cuda = 0
        self.odd = 0
        self.gpu = 0
        self.ranges: list[Range] = []
        self.captures: list[CaptureLabel] = []
        self.unmatched = 0
        self.near: dict[str, None] = {}

    def take(self, event: Any) -> None:
        """One element of traceEvents."""
        self.events += 1
        try:
            phase, category = event.get("ph"), event.get("cat")
            self.with_phase += phase is not None
            if phase != "X" or category is None:
                return
            if category in _CALLS:
                self._call(event, category)
            elif category in _KERNELS or category in _COPIES:
                self._activity(event, category in _KERNELS)
            elif category == "user_annotation":
                self._annotation(event)
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
            self.odd += 1
        if len(self._calls) >= _BATCH or len(self._activities) >= _BATCH:
            self.flush()

    def flush(self) -> None:
        """Write what is waiting."""
        self._database.execute("BEGIN")
        self._database.executemany(_CALL, self._calls)
        self._database.executemany(_ACTIVITY, self._activities)
        self._database.execute("COMMIT")
        self._calls.clear()
        self._activities.clear()

    def _call(self, event: dict[str, Any], category: str) -> None:
        name = event["name"]
        kind = self._kinds.get(name)
        if kind is None:
            kind = self._kinds.setdefault(name, kind_of(name))
        start, end = _times(event)
        self._calls.append(
            (
                self._thread(event),
                start,
                end,
                int(kind),
                int("driver" in category),
                _whole(event.get("args", {}).get("correlation")),
            )
        )
        self.cuda += 1

    def _activity(self, event: dict[str, Any], is_kernel: bool) -> None:
        args = event.get("args", {})
        start, end = _times(event)
        graph = _whole(args.get("graph id")) or None
        name = self._names.setdefault(event["name"], len(self._names)) if is_kernel else -1
        stream = _whole(args.get("stream", event.get("tid")))
        correlation = _whole(args.get("correlation"))
        self._activities.append((correlation, stream, int(is_kernel), start, end, end - start, graph, name))
        self.cuda += 1
        self.gpu += 1

    def _annotation(self, event: dict[str, Any]) -> None:
        text = event["name"]
        start, end = _times(event)
        thread = self._thread(event)
        capture = labels.capture_bucket(text)
        step = None if capture else labels.read(text, self._own)
        if capture:
            self.captures.append(CaptureLabel(thread, start, end, *capture))
        elif step:
            self.ranges.append(Range(_PROCESS, thread, start, end, step))
        else:
            self.unmatched += 1
            if len(self.near) < 3 and labels.looks_like_a_step(text):
                self.near[text[:60]] = None

    def _thread(self, event: dict[str, Any]) -> int:
        return self._threads.setdefault((str(event["pid"]), str(event["tid"])), len(self._threads))

    def source(self, rank: int | None) -> Source:
        """What was read."""
        names = list(self._names)
        missing = []
        if self.odd:
            missing.append(f"{self.odd} events without a usable time, name or thread were left out")
        if not self.gpu:
            missing.append("no GPU activity was recorded (no kernel events): only what the host launched is known")
        pid = next((pid for pid, _ in self._threads), "?")
        return Source(
            kind="torch.profiler",
            version="torch.profiler",
            graph_mode="node",
            ranges=self.ranges,
            capture_labels=self.captures,
            made=[],
            lanes={_PROCESS: f"process {pid}" if rank is None else f"rank {rank}"},
            unmatched=self.unmatched,
            near=list(self.near),
            missing=missing,
            api_name=lambda identity: "",
            kernel_name=lambda origin, first: names[first] if 0 <= first < len(names) else "",
            ranks={} if rank is None else {_PROCESS: rank},
        )


def _times(event: dict[str, Any]) -> tuple[int, int]:
    """Start and end in nanoseconds; the file has microseconds."""
    start, duration = float(event["ts"]), float(event["dur"])
    if not (abs(start) < 1e16 and 0 <= duration < 1e16):  # also refuses NaN
        raise ValueError("no time")
    return round(start * 1000), round((start + duration) * 1000)


def _whole(value: Any) -> int | None:
    """An id; SQLite holds 63 bits."""
    return int(value) & (1 << 63) - 1 if isinstance(value, int | float) and value >= 0 else None


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:120]
