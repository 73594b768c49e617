"""GPU time of steps: sums by stream, and streams overlaid where several work for one step."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

_BUDGET_ROWS = 200_000
"""Rows that are looked at to overlay streams; beyond that, steps spread evenly over the trace are."""

Interval = tuple[int, int]


def gpu_times(database: sqlite3.Connection) -> dict[int, dict[str, Any]]:
    """For each step the GPU fields of `StepRecord`: what its launches, copies and fills kept the GPU busy with."""
    sums = database.execute(
        "SELECT c.step, sum(a.busy), min(a.start), max(a.end), min(a.stream), max(a.last_stream)"
        " FROM call c JOIN activity a ON a.process = c.process AND a.correlation = c.correlation"
        " WHERE c.step IS NOT NULL AND a.start IS NOT NULL AND a.end IS NOT NULL GROUP BY c.step"
    ).fetchall()
    # One stream, and no more work than fits: nothing ran at the same time, and the sum is exact.
    several = [step for step, busy, start, end, low, high in sums if low != high or busy > end - start]
    overlaid = _overlaid(database, several)
    times = {}
    for step, busy, start, end, low, high in sums:
        covered, overlap, streams = overlaid.get(step, (min(busy, end - start), None, 1 if low == high else 2))
        exact = step in overlaid or (low == high and busy <= end - start)
        times[step] = {
            "gpu_start_ns": start,
            "gpu_end_ns": end,
            "gpu_busy_ns": covered,
            "busy_exact": exact,
            "streams": streams,
            "overlap": overlap,
        }
    return times


def union(intervals: Iterable[Interval]) -> int:
    """Time covered by at least one of the intervals."""
    covered, reached = 0, None
    for start, end in sorted(intervals):
        if reached is None or start > reached:
            covered += max(0, end - start)
            reached = end
        elif end > reached:
            covered += end - reached
            reached = end
    return covered


def _overlaid(database: sqlite3.Connection, steps: list[int]) -> dict[int, tuple[int, float | None, int]]:
    """(time covered, overlap of the two busiest streams, streams) of as many of the steps as the budget allows."""
    if not steps:
        return {}
    database.execute("CREATE TEMP TABLE wanted (step INTEGER PRIMARY KEY)")
    database.executemany("INSERT INTO wanted VALUES (?)", [(step,) for step in steps])
    pieces: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for step, *piece in database.execute(
        "SELECT c.step, a.origin, min(a.first), max(a.last), sum(a.rows) FROM wanted w"
        " JOIN call c ON c.step = w.step JOIN activity a ON a.process = c.process AND a.correlation = c.correlation"
        " GROUP BY c.step, a.origin"
    ):
        pieces[step].append(tuple(piece))
    cost = {
        step: sum(rows if not origin else last - first + 1 for origin, first, last, rows in parts)
        for step, parts in pieces.items()
    }
    found = {}
    for step in _spread(steps, cost):
        streams: dict[Any, list[Interval]] = defaultdict(list)
        for origin, first, last, _ in pieces[step]:
            for stream, start, end in _single(database, step, origin, first, last):
                streams[stream].append((start, end))
        covered = union(interval for stream in streams.values() for interval in stream)
        found[step] = covered, _overlap(list(streams.values())), len(streams)
    return found


def _spread(steps: list[int], cost: dict[int, int]) -> list[int]:
    """All steps, or as many as cost no more than the budget, evenly spaced."""
    total = sum(cost.get(step, 0) for step in steps)
    every = max(1, -(-total // _BUDGET_ROWS))
    chosen, spent = [], 0
    for step in steps[::every]:
        spent += cost.get(step, 0)
        if spent > 2 * _BUDGET_ROWS:
            break
        chosen.append(step)
    return chosen


def _single(
    database: sqlite3.Connection, step: int, origin: str, first: int, last: int
) -> Iterable[tuple[Any, int, int]]:
    """(stream, start, end) of each activity of a step that lies in one table."""
    if not origin:
        return database.execute(
            "SELECT a.stream, a.start, a.end FROM call c JOIN activity a ON a.process = c.process"
            " AND a.correlation = c.correlation WHERE c.step = ? AND a.origin = '' AND a.start IS NOT NULL",
            (step,),
        )
    return database.execute(
        f"SELECT streamId, start, end FROM {origin} k WHERE rowid BETWEEN ? AND ? AND (globalPid, correlationId) IN"
        " (SELECT process, correlation FROM call WHERE step = ?)",
        (first, last, step),
    )


def _overlap(streams: list[list[Interval]]) -> float | None:
    """1 - (step - max(A, B)) / min(A, B): 1 if the shorter one is hidden behind the longer, 0 if they take turns."""
    busiest = sorted(streams, key=lambda s: -union(s))[:2]
    if len(busiest) < 2:
        return None
    first, second = (union(stream) for stream in busiest)
    if not second:
        return None
    together = union(interval for stream in busiest for interval in stream)
    return round(min(1.0, max(0.0, 1 - (together - first) / second)), 4)
