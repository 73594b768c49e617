"""A trace file -> `steps.Trace`: reads it into a workspace, says where steps begin, and adds up what each one did.

The sums are SQL; what is left in Python is one pass over the steps. Next on the path: `misses/` (what the steps mean).
"""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from cudagraph_doctor.errors import Inconclusive
from cudagraph_doctor.traces import busy, nsys
from cudagraph_doctor.traces.calls import Kind, describe_error
from cudagraph_doctor.traces.captures import CaptureLinks, capture_windows, link
from cudagraph_doctor.traces.labels import Family
from cudagraph_doctor.traces.ranges import Range, steps_of
from cudagraph_doctor.traces.segments import segments
from cudagraph_doctor.traces.sniff import Form
from cudagraph_doctor.traces.source import Source
from cudagraph_doctor.traces.steps import Gap, Lane, StepRecord, Trace
from cudagraph_doctor.traces.workspace import workspace

_LAUNCHES = f"({Kind.GRAPH_LAUNCH}, {Kind.LAUNCH})"
_TOP_NAMES = 3


def collect(path: Path, form: Form, own: Family | None = None) -> Trace:
    """Read a trace.

    Args:
        path: the file; only read.
        form: what `sniff` says it is; not `NSYS_REP`.
        own: the family of the user's `--step-pattern`.

    Raises:
        UsageError: it is nothing that can be read.
        Inconclusive: it is damaged, or lacks what is needed.
    """
    with workspace() as database:
        if form is Form.SQLITE:
            source = nsys.load(path, database, own)
        else:
            from cudagraph_doctor.traces import kineto  # only here: exports of nsys need no JSON library

            source = kineto.load(path, database, own, gzipped=form is Form.JSON_GZ)
        try:
            return _Collector(path.name, database, source).trace()
        except (sqlite3.Error, UnicodeDecodeError, OverflowError) as error:
            raise Inconclusive(
                f'The trace "{path}" holds rows that cannot be worked with.', seen=str(error), fix="Export it again."
            ) from None


class _Collector:
    """Works on one filled workspace."""

    def __init__(self, name: str, database: sqlite3.Connection, source: Source) -> None:
        self._name = name
        self._database = database
        self._source = source
        self._missing = list(source.missing)
        self._lanes: dict[int, int] = {}

    def trace(self) -> Trace:
        """All of it."""
        database, source = self._database, self._source
        database.execute("CREATE INDEX call_time ON call (thread, start)")
        self._drop_nested()
        windows = capture_windows(database)
        database.executemany(
            "UPDATE call SET captured = 1 WHERE thread = ? AND start BETWEEN ? AND ?",
            [(w.thread, w.start, w.end) for w in windows],
        )
        steps, steps_from = self._steps()
        self._assign(steps)
        links = link(database, windows, source.capture_labels, source.made, source.api_name)
        self._lanes = {process: i for i, process in enumerate(self._processes(steps))}
        database.execute("CREATE INDEX activity_call ON activity (process, correlation)")
        records = self._records(steps, links)
        outside = self._outside()
        self._completeness(records)
        return Trace(
            source=self._name,
            kind=source.kind,
            version=source.version,
            graph_mode=source.graph_mode,
            steps_from=steps_from,
            lanes=tuple(
                Lane(source.lanes.get(process, f"process {process}"), self._name, source.ranks.get(process))
                for process in self._lanes
            ),
            steps=tuple(records),
            captures=links.records(self._lanes),
            gaps=tuple(self._gaps()),
            outside_launches=sum(outside.values()),
            outside_graph_launches=outside.get(Kind.GRAPH_LAUNCH, 0),
            unmatched_labels=source.unmatched,
            near_labels=tuple(source.near) if not source.ranges else (),
            missing=tuple(self._missing),
            facts=self._facts(),
        )

    def _drop_nested(self) -> None:
        """A driver launch inside a runtime launch of its thread is the same launch."""
        self._database.execute(
            f"UPDATE call SET kind = {Kind.NESTED} WHERE driver = 1 AND kind IN {_LAUNCHES} AND EXISTS ("
            f" SELECT 1 FROM (SELECT o.start, o.end, o.kind, o.driver FROM call o WHERE o.thread = call.thread"
            f" AND o.start <= call.start AND o.rowid <> call.rowid ORDER BY o.start DESC LIMIT 1) o"
            f" WHERE o.driver = 0 AND o.kind IN {_LAUNCHES} AND o.end >= call.end)"
        )

    # steps

    def _steps(self) -> tuple[list[Range], str]:
        if self._source.ranges:
            steps = steps_of(self._source.ranges)
            return steps, "labels of " + ", ".join(dict.fromkeys(step.label.family for step in steps))
        return segments(self._database)

    def _assign(self, steps: list[Range]) -> None:
        database = self._database
        database.executemany(
            "INSERT INTO step VALUES (?, ?, ?, ?, ?)",
            [(i, s.process, s.thread, s.start, s.end) for i, s in enumerate(steps)],
        )
        database.execute(
            "CREATE TEMP TABLE side_thread AS SELECT DISTINCT process, thread FROM call WHERE"
            f" kind IN {_LAUNCHES} AND captured = 0 AND thread NOT IN (SELECT thread FROM step)"
        )
        database.executemany(
            "UPDATE call SET step = ?1 WHERE thread = ?2 AND start BETWEEN ?3 AND ?4",
            [(i, s.thread, s.start, s.end) for i, s in enumerate(steps)],
        )
        side = defaultdict(list)
        for process, thread in database.execute("SELECT process, thread FROM side_thread"):
            side[process].append(thread)
        database.executemany(
            f"UPDATE call SET side = ?1 WHERE thread = ?2 AND start BETWEEN ?3 AND ?4 AND kind IN {_LAUNCHES}",
            [(i, thread, s.start, s.end) for i, s in enumerate(steps) for thread in side.get(s.process, ())],
        )

    def _processes(self, steps: list[Range]) -> list[int]:
        """Those with steps; all that call CUDA if there are none."""
        with_steps = sorted({step.process for step in steps})
        return with_steps or sorted(self._source.lanes)

    # what each step did

    def _records(self, steps: list[Range], links: CaptureLinks) -> list[StepRecord]:
        counts = self._counts()
        sides = self._sides()
        launched = self._graphs_launched()
        gpu = busy.gpu_times(self._database)
        kernels = self._kernels()
        names = self._loose_names()
        failures = self._failures()
        window = self._database.execute("SELECT min(start), max(end) FROM call").fetchone()
        records: list[StepRecord] = []
        next_index: dict[int, int] = defaultdict(int)
        for i, step in enumerate(steps):
            lane = self._lanes[step.process]
            index = next_index[lane]
            next_index[lane] += 1
            graphs, without_rows = launched.get(i, ((), 0))
            in_graphs, from_others, unexplained = kernels.get(i, (0, 0, 0))
            count = counts.get(i, {})
            inside, inside_from = self._kernels_inside(
                count.get("graph_launches", 0), graphs, without_rows, step.process, in_graphs, links
            )
            counted: dict[str, Any] = {
                **count,
                "loose_launches": count.get("loose_launches", 0) + from_others,
                **sides.get(i, {}),
                **gpu.get(i, {}),
            }
            record = StepRecord(
                lane,
                index,
                step.label,
                step.start,
                step.end,
                whole=step.whole and step.end >= (window[0] or 0) and step.start <= (window[1] or 0),
                graph_kernels=inside,
                graph_kernels_from=inside_from,
                launches_without_rows=without_rows,
                unexplained=unexplained,
                graphs=graphs,
                loose_names=names.get(i, ()),
                failures=failures.get(i, ()),
                **counted,
            )
            records.append(record)
        return records

    def _kernels_inside(
        self, launches: int, graphs: tuple[str, ...], without_rows: int, process: int, seen: int, links: CaptureLinks
    ) -> tuple[int | None, str]:
        """Kernels inside a step's graphs: as they ran, else as they were counted while captured, else not known."""
        if not launches or (seen and not without_rows):
            return seen, "rows"
        captured = [links.kernels.get((process, graph)) for graph in graphs]
        if captured and all(captured):
            return sum(filter(None, captured)), "capture"
        return None, ""

    def _counts(self) -> dict[int, dict[str, Any]]:
        launch = f"kind IN {_LAUNCHES} AND captured = 0 AND result = 0"
        columns = {
            "captures": f"sum(kind = {Kind.BEGIN_CAPTURE})",
            "instantiations": f"sum(kind = {Kind.INSTANTIATE})",
            "updates": f"sum(kind = {Kind.EXEC_UPDATE})",
            "graph_launches": f"sum(kind = {Kind.GRAPH_LAUNCH} AND captured = 0 AND result = 0)",
            "loose_launches": f"sum(kind = {Kind.LAUNCH} AND captured = 0 AND result = 0)",
            "captured_launches": f"sum(kind = {Kind.LAUNCH} AND captured = 1)",
            "first_call_ns": f"min(CASE WHEN {launch} THEN start END)",
            "last_call_ns": f"max(CASE WHEN {launch} THEN end END)",
            "call_ns": f"sum(CASE WHEN {launch} THEN end - start ELSE 0 END)",
        }
        rows = self._database.execute(
            f"SELECT step, {', '.join(columns.values())} FROM call WHERE step IS NOT NULL GROUP BY step"
        )
        return {row[0]: dict(zip(columns, row[1:], strict=True)) for row in rows}

    def _sides(self) -> dict[int, dict[str, Any]]:
        rows = self._database.execute(
            f"SELECT side, sum(kind = {Kind.GRAPH_LAUNCH}), sum(kind = {Kind.LAUNCH}) FROM call"
            " WHERE side IS NOT NULL AND captured = 0 GROUP BY side"
        )
        return {i: {"side_graph_launches": graphs, "side_loose_launches": loose} for i, graphs, loose in rows}

    def _graphs_launched(self) -> dict[int, tuple[tuple[str, ...], int]]:
        """For each step the graphs in the order of their launch, and how many launches left no GPU activity."""
        graphs: dict[int, list[str]] = defaultdict(list)
        without: dict[int, int] = defaultdict(int)
        for step, graph, rows in self._database.execute(
            "SELECT c.step, max(a.graph), count(a.rows) FROM call c LEFT JOIN activity a"
            " ON a.process = c.process AND a.correlation = c.correlation"
            f" WHERE c.step IS NOT NULL AND c.kind = {Kind.GRAPH_LAUNCH} AND c.captured = 0 AND c.result = 0"
            " GROUP BY c.rowid ORDER BY c.step, c.start"
        ):
            graphs[step].append(graph or "")
            without[step] += rows == 0
        return {step: (tuple(graphs[step]), without[step]) for step in graphs}

    def _kernels(self) -> dict[int, tuple[int, int, int]]:
        """For each step: kernels in graphs, kernels of calls that are no known launch, graph activity of such calls."""
        graph = f"c.kind = {Kind.GRAPH_LAUNCH} OR a.graph IS NOT NULL"
        rows = self._database.execute(
            f"SELECT c.step, sum(CASE WHEN {graph} THEN a.kernels ELSE 0 END),"
            f" sum(CASE WHEN c.kind NOT IN {_LAUNCHES} AND c.kind <> {Kind.NESTED} AND a.graph IS NULL"
            "  THEN a.kernels ELSE 0 END),"
            f" sum(a.graph IS NOT NULL AND c.kind <> {Kind.GRAPH_LAUNCH} AND c.kind <> {Kind.NESTED})"
            " FROM call c JOIN activity a ON a.process = c.process AND a.correlation = c.correlation"
            " WHERE c.step IS NOT NULL AND c.captured = 0 GROUP BY c.step"
        )
        return {step: (inside, others, unexplained) for step, inside, others, unexplained in rows}

    def _failures(self) -> dict[int, tuple[str, ...]]:
        kinds = (Kind.GRAPH_LAUNCH, Kind.BEGIN_CAPTURE, Kind.END_CAPTURE, Kind.INSTANTIATE, Kind.EXEC_UPDATE)
        found: dict[int, dict[str, None]] = defaultdict(dict)
        for step, api, result in self._database.execute(
            "SELECT step, api, result FROM call WHERE step IS NOT NULL AND result <> 0"
            f" AND (result >= 900 AND result < 911 OR kind IN ({', '.join(str(int(kind)) for kind in kinds)}))"
            " ORDER BY step, start"
        ):
            found[step][describe_error(self._source.api_name(api), result)] = None
        return {step: tuple(texts) for step, texts in found.items()}

    def _loose_names(self) -> dict[int, tuple[str, ...]]:
        """The kernels that ran most often outside graphs, in steps that launched graphs as well."""
        counts: dict[int, Counter[str]] = defaultdict(Counter)
        for step, origin, first in self._database.execute(
            "SELECT c.step, a.origin, a.first FROM call c JOIN activity a ON a.process = c.process"
            " AND a.correlation = c.correlation WHERE c.step IN (SELECT step FROM call"
            f" WHERE kind = {Kind.GRAPH_LAUNCH} AND captured = 0) AND c.kind = {Kind.LAUNCH} AND c.captured = 0"
            " AND a.kernels > 0"
        ).fetchall():
            counts[step][_short(self._source.kernel_name(origin, first))] += 1
        return {
            step: tuple(name for name, _ in sorted(found.items(), key=lambda item: (-item[1], item[0]))[:_TOP_NAMES])
            for step, found in counts.items()
        }

    # the rest

    def _outside(self) -> dict[int, int]:
        return dict(
            self._database.execute(
                "SELECT kind, count(*) FROM call WHERE step IS NULL AND side IS NULL AND captured = 0"
                f" AND kind IN {_LAUNCHES} GROUP BY kind"
            ).fetchall()
        )

    def _gaps(self) -> list[Gap]:
        """From the last graph launch of a step to the first of the next, on the same thread."""
        self._database.execute(
            "CREATE TEMP TABLE gap AS SELECT process, thread, lag(last) OVER (PARTITION BY thread ORDER BY "
            "first) AS start,"
            " first AS end FROM (SELECT process, thread, min(start) AS first, max(end) AS last FROM call"
            f" WHERE kind = {Kind.GRAPH_LAUNCH} AND captured = 0 AND step IS NOT NULL GROUP BY step)"
        )
        totals = self._database.execute(
            "SELECT process, count(*), sum(end - start) FROM gap WHERE start IS NOT NULL AND end > start"
            " GROUP BY process"
        ).fetchall()
        held: dict[tuple[int, int], int] = {
            (process, kind): time
            for process, kind, time in self._database.execute(
                "SELECT g.process, c.kind, sum(min(c.end, g.end) - c.start) FROM gap g CROSS JOIN call c"
                " ON c.thread = g.thread AND c.start >= g.start AND c.start < g.end"
                f" WHERE g.start IS NOT NULL AND c.kind <> {Kind.NESTED} GROUP BY 1, 2"
            )
        }
        named = (Kind.COPY, Kind.ALLOCATE, Kind.SYNCHRONIZE)
        launches = (Kind.LAUNCH, Kind.GRAPH_LAUNCH)
        gaps = []
        for process, count, total in totals:
            times = {kind: time for (owner, kind), time in held.items() if owner == process}
            copies, allocation, sync = (times.get(kind, 0) for kind in named)
            launched = sum(times.get(kind, 0) for kind in launches)
            others = sum(times.values()) - copies - allocation - sync - launched
            gaps.append(Gap(self._lanes[process], count, total, copies, allocation, sync, launched, others))
        return gaps

    def _facts(self) -> dict[str, int]:
        calls, graphs, captures = self._database.execute(
            f"SELECT count(*), sum(kind = {Kind.GRAPH_LAUNCH} AND captured = 0), sum(kind = {Kind.BEGIN_CAPTURE})"
            " FROM call"
        ).fetchone()
        (kernels,) = self._database.execute("SELECT coalesce(sum(kernels), 0) FROM activity").fetchone()
        return {"calls": calls, "graph launches": graphs or 0, "captures": captures or 0, "kernel rows": kernels}

    def _completeness(self, records: list[StepRecord]) -> None:
        lost = sum(r.launches_without_rows for r in records)
        (sessions,) = self._database.execute(f"SELECT count(*) FROM call WHERE kind = {Kind.PROFILER_START}").fetchone()
        launches = sum(r.graph_launches for r in records)
        if lost and (lost < launches or self._source.graph_mode == "node"):
            self._missing.append(f"{lost} of {launches} graph launches have no GPU rows")
        orphans = self._orphans() if lost else 0
        if orphans:
            self._missing.append(
                f"{orphans} groups of graph rows belong to no recorded launch: ids are shifted (a known fault of "
                "CUPTI before CUDA 13.1 U1 in second profiling sessions), or their launches lie before the trace"
            )
        if sessions > 1:
            self._missing.append(f"the profiler was started {sessions} times: steps in between were not recorded")
        cut = sum(not r.whole for r in records)
        if cut:
            self._missing.append(f"{cut} steps are cut off: their range has no end, or lies outside the recorded calls")
        inexact = sum(not r.busy_exact for r in records)
        if inexact:
            self._missing.append(
                f"streams were not overlaid in {inexact} steps (too many rows): GPU time there is at most what is said"
            )

    def _orphans(self) -> int:
        """Graph activities whose launching call is not in the trace."""
        (count,) = self._database.execute(
            "SELECT count(*) FROM activity WHERE graph IS NOT NULL AND (process, correlation) NOT IN"
            f" (SELECT process, correlation FROM call WHERE kind = {Kind.GRAPH_LAUNCH})"
        ).fetchone()
        return int(count)


def _short(name: str) -> str:
    """A kernel's name without return type, template arguments and parameters."""
    return name.removeprefix("void ").split("<", 1)[0].split("(", 1)[0].strip()[:60] or name[:60]
