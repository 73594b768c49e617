"""Steps without labels: cuts a thread's calls where the host waits, or at each graph launch.

A decode loop reads its tokens back once a step, so the calls between two waits are a step. Where a loop never waits
(or waits several times a step, which shows in segments without any launch), each graph launch begins one.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from cudagraph_doctor.traces.calls import Kind
from cudagraph_doctor.traces.labels import Label, Stage
from cudagraph_doctor.traces.ranges import Range

_BY_WAITS = "no labels: cut where the host waits for the GPU"
_BY_LAUNCHES = "no labels: cut at each graph launch"
_REGULAR = 0.5
"""Share of the segments with graph launches that have to be alike before a cut by waits is believed."""


def segments(database: sqlite3.Connection) -> tuple[list[Range], str]:
    """Steps of all threads that launch graphs, and in words how they were found; no steps and "" where none does."""
    threads = database.execute(
        f"SELECT process, thread FROM call WHERE kind = {Kind.GRAPH_LAUNCH} AND captured = 0"
        " GROUP BY 1, 2 ORDER BY 1, 2"
    ).fetchall()
    steps: list[Range] = []
    ways: Counter[str] = Counter()
    for process, thread in threads:
        parts, way = _by_waits(_calls(database, thread)), _BY_WAITS
        if not _believable(parts):
            parts, way = _by_launches(_calls(database, thread)), _BY_LAUNCHES
        ways[way] += 1
        label = Label("", "", Stage.UNKNOWN, form="without labels")
        steps += [Range(process, thread, part.start, part.end, label) for part in _since_first_replay(parts)]
    steps.sort(key=lambda s: (s.process, s.start))
    return steps, "; ".join(ways)


@dataclass(slots=True)
class _Part:
    start: int
    end: int
    graphs: int = 0
    first_launch: int = 0

    def take(self, kind: int, start: int, end: int) -> None:
        self.end = max(self.end, end)
        self.graphs += kind == Kind.GRAPH_LAUNCH
        self.first_launch = self.first_launch or start


def _calls(database: sqlite3.Connection, thread: int) -> Iterator[tuple[int, int, int]]:
    """(kind, start, end) in order of time; not held in memory."""
    yield from database.execute(
        f"SELECT kind, start, end FROM call WHERE thread = ? AND (kind = {Kind.BEGIN_CAPTURE} OR captured = 0"
        f" AND kind IN ({Kind.GRAPH_LAUNCH}, {Kind.LAUNCH}, {Kind.SYNCHRONIZE})) ORDER BY start",
        (thread,),
    )


def _by_waits(calls: Iterable[tuple[int, int, int]]) -> list[_Part]:
    """Launches between waits; two waits without a launch between them are one."""
    parts: list[_Part] = []
    begin: int | None = 0
    for kind, start, end in calls:
        if kind in (Kind.SYNCHRONIZE, Kind.BEGIN_CAPTURE):
            # A capture opens the step whose graph it makes.
            begin = start if kind == Kind.BEGIN_CAPTURE else begin or 0
            continue
        if begin is not None:
            parts.append(_Part(begin or start, end))
        parts[-1].take(kind, start, end)
        begin = None
    return parts


def _by_launches(calls: Iterable[tuple[int, int, int]]) -> list[_Part]:
    """Each graph launch, with the kernel launches after it."""
    parts: list[_Part] = []
    begin = 0
    for kind, start, end in calls:
        if kind == Kind.BEGIN_CAPTURE:
            begin = begin or start
        elif kind == Kind.GRAPH_LAUNCH:
            parts.append(_Part(begin or start, end))
            parts[-1].take(kind, start, end)
            begin = 0
        elif kind == Kind.LAUNCH and parts and not begin:
            parts[-1].take(kind, start, end)
    return parts


def _since_first_replay(parts: list[_Part]) -> list[_Part]:
    """Without loading, warm-up and the captures before the first replay; captures after it stay in their steps."""
    first = next((i for i, part in enumerate(parts) if part.graphs), len(parts))
    kept = parts[first:]
    if kept:
        kept[0].start = kept[0].first_launch
    return kept


def _believable(parts: list[_Part]) -> bool:
    """More than one segment, most of those with graphs alike, and not mostly crumbs without any."""
    with_graphs = Counter(part.graphs for part in parts if part.graphs)
    total = sum(with_graphs.values())
    if total < 2:
        return False
    return with_graphs.most_common(1)[0][1] >= _REGULAR * total and total >= _REGULAR * len(parts)
