"""Captures of a trace: their windows, the graphs that came of them, and the bucket that each was for."""

from __future__ import annotations

import sqlite3
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from cudagraph_doctor.traces.calls import Kind, describe_error
from cudagraph_doctor.traces.source import CaptureLabel, GraphMade
from cudagraph_doctor.traces.steps import CaptureRecord


@dataclass(slots=True)
class Window:
    """Between the begin and the end of a capture, on one thread. What is launched in it runs nothing."""

    process: int
    thread: int
    start: int
    end: int
    error: str = ""
    launches: int = 0
    bucket: int | None = None
    kind: str = ""
    graphs: dict[str, int] = field(default_factory=dict)
    """Id -> nodes told of it."""


@dataclass(slots=True)
class CaptureLinks:
    """All captures, and what is known of graphs from them."""

    windows: list[Window]
    labelled: list[CaptureLabel]
    kernels: dict[tuple[int, str], int] = field(default_factory=dict)
    """(process, graph) -> launch calls in its capture."""

    def records(self, lanes: dict[int, int]) -> tuple[CaptureRecord, ...]:
        """In order of time; captures of processes that are no lane are left out. A labelled range alone counts too."""
        found = [
            CaptureRecord(lanes[w.process], w.start, w.end, w.bucket, w.kind, w.launches, tuple(w.graphs), w.error)
            for w in self.windows
            if w.process in lanes
        ]
        if not found and lanes:
            first = min(lanes.values())
            found = [CaptureRecord(first, c.start, c.end, c.bucket, c.kind) for c in self.labelled]
        return tuple(sorted(found, key=lambda c: c.start_ns))


def capture_windows(database: sqlite3.Connection) -> list[Window]:
    """All windows, by thread and time; one without an end reaches to the end of the trace."""
    (last,) = database.execute("SELECT coalesce(max(end), 0) FROM call").fetchone()
    windows: list[Window] = []
    open_: Window | None = None
    for process, thread, kind, start, end, result in database.execute(
        f"SELECT process, thread, kind, start, end, result FROM call WHERE kind IN ({Kind.BEGIN_CAPTURE},"
        f" {Kind.END_CAPTURE}) ORDER BY thread, start"
    ):
        if kind == Kind.BEGIN_CAPTURE:
            # A second capture on another stream of the thread keeps the window open.
            if result == 0 and (open_ is None or open_.thread != thread):
                open_ = Window(process, thread, start, last)
                windows.append(open_)
        elif open_ is not None and open_.thread == thread:
            open_.end = end
            open_ = None
    return windows


def link(
    database: sqlite3.Connection,
    windows: list[Window],
    labelled: list[CaptureLabel],
    made: list[GraphMade],
    api_name: Callable[[int], str],
) -> CaptureLinks:
    """Give each window its launches, its error, its graphs (made on its thread before the next capture), its label."""
    for window in windows:
        failed = database.execute(
            "SELECT api, result FROM call WHERE thread = ? AND start BETWEEN ? AND ? AND result <> 0"
            f" AND (result >= 900 OR kind = {Kind.END_CAPTURE}) ORDER BY start LIMIT 1",
            (window.thread, window.start, window.end),
        ).fetchone()
        if failed:
            window.error = describe_error(api_name(failed[0]), failed[1])
        (window.launches,) = database.execute(
            f"SELECT count(*) FROM call WHERE thread = ? AND start BETWEEN ? AND ? AND kind = {Kind.LAUNCH}",
            (window.thread, window.start, window.end),
        ).fetchone()
    by_thread: dict[int, list[Window]] = defaultdict(list)
    for window in windows:
        by_thread[window.thread].append(window)
    for graph in made:
        candidates = by_thread.get(graph.thread, [])
        position = bisect_right([window.start for window in candidates], graph.time) - 1
        if position >= 0:
            candidates[position].graphs.setdefault(graph.graph, graph.nodes)
    for label in labelled:
        for window in by_thread.get(label.thread, []):
            if label.start <= window.start <= label.end:
                window.bucket, window.kind = label.bucket, label.kind
    kernels = {(window.process, graph): window.launches for window in windows for graph in window.graphs}
    return CaptureLinks(windows, labelled, kernels)
