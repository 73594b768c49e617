"""nsys SQLite exports (schemas 3.0 to 3.25 and on) -> the workspace. The export is opened read-only and never altered.

Tables that hold nothing do not exist in an export, columns come and go between versions, rows are in no order, and
correlation ids are unique only within a process: so columns are asked for, and everything is joined by process.
"""

from __future__ import annotations

import re
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path

from cudagraph_doctor.errors import Inconclusive, UsageError
from cudagraph_doctor.traces import labels
from cudagraph_doctor.traces.calls import Kind, is_api_name, kind_of
from cudagraph_doctor.traces.grouping import add_up
from cudagraph_doctor.traces.ranges import Range
from cudagraph_doctor.traces.source import CaptureLabel, GraphMade, Source

RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
GRAPH_TRACE = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
COPIES = ("CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET")

_NEEDED = {
    RUNTIME: {"start", "end", "globalTid", "correlationId", "nameId", "returnValue"},
    KERNEL: {"start", "end", "streamId", "correlationId", "globalPid"},
    GRAPH_TRACE: {"start", "end", "streamId", "correlationId", "globalPid", "graphExecId"},
    "StringIds": {"id", "value"},
    "NVTX_EVENTS": {"start", "end", "eventType", "text", "globalTid"},
}
_RANGE_TYPES = "59, 60, 70, 71"  # push/pop and start/end ranges, plain and with a payload
_QUICK_CHECK_BYTES = 64 << 20
"""Smaller files are checked for damage as a whole."""
_EXPORT_FIX = "Export it again: nsys export --type sqlite --force-overwrite true --output trace.sqlite trace.nsys-rep"
_TOLD_DIAGNOSTICS = (
    re.compile(r"NVTX payload extension is incompatible[^/\\]*"),
    re.compile(r"No CUDA events collected[^/\\]*"),
    re.compile(r"[^/\\]*CUDA[^/\\]*(?:dropped|lost)[^/\\]*", re.IGNORECASE),
    re.compile(r"Not all [^/\\]*events[^/\\]*"),
)
"""Texts of the export's own diagnostics that may be repeated: no paths, names or settings in them."""


def load(path: Path, database: sqlite3.Connection, own: labels.Family | None) -> Source:
    """Fill the workspace from an export.

    Raises:
        UsageError: it is a database of something else.
        Inconclusive: it is damaged, cut short, or holds no CUDA calls.
    """
    address = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
    try:
        database.execute("ATTACH ? AS source", (address,))
        return _Export(path, database).read(own)
    except (sqlite3.Error, UnicodeDecodeError) as error:  # SQLite's own message may quote damaged bytes
        seen = str(error).replace(address, path.name)
        raise Inconclusive(f'The export "{path}" is damaged or cut short.', seen=seen, fix=_EXPORT_FIX) from None


@dataclass(slots=True)
class _Export:
    path: Path
    database: sqlite3.Connection
    columns: dict[str, set[str]] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    strings: dict[int, str] = field(default_factory=dict)

    def read(self, own: labels.Family | None) -> Source:
        self._look()
        ranges, captures, unmatched, near = self._ranges(own)
        self._calls()
        self._activities()
        self._ranges_missing(len(ranges), unmatched)
        return Source(
            kind="nsys",
            version=self._version(),
            graph_mode=self._mode(),
            ranges=ranges,
            capture_labels=captures,
            made=self._graphs_made(),
            lanes=self._lanes(),
            unmatched=unmatched,
            near=near,
            missing=self.missing + self._diagnostics(),
            api_name=self._string,
            kernel_name=self._kernel_name,
        )

    def _look(self) -> None:
        """Which tables and columns there are; refuse what cannot be worked with."""
        if self.path.stat().st_size <= _QUICK_CHECK_BYTES:
            (found,) = self.database.execute("PRAGMA source.quick_check(1)").fetchone()
            if found != "ok":
                raise Inconclusive(f'The export "{self.path}" is damaged.', seen=str(found)[:200], fix=_EXPORT_FIX)
        names = [name for (name,) in self.database.execute("SELECT name FROM source.sqlite_master WHERE type='table'")]
        for name in names:
            quoted = '"' + str(name).replace('"', '""') + '"'
            self.columns[name] = {row[1] for row in self.database.execute(f"PRAGMA source.table_info({quoted})")}
        if RUNTIME in self.columns and {"cbid", "_id_"} & self.columns[RUNTIME]:
            raise UsageError(
                f'"{self.path}" is a database of nvprof, which knows nothing of CUDA graphs.',
                fix="Record with Nsight Systems: cudagraph-doctor record -o trace -- python serve.py",
            )
        known = {RUNTIME, KERNEL, GRAPH_TRACE, "NVTX_EVENTS", "StringIds", "META_DATA_EXPORT", "EXPORT_META_DATA"}
        if not known & set(names):
            raise UsageError(
                f'"{self.path}" is an SQLite database, but no export of Nsight Systems.',
                seen=f"tables {', '.join(sorted(map(str, names))[:5])}" if names else "no tables",
                fix=_EXPORT_FIX,
            )
        if RUNTIME not in self.columns:
            seen = self._diagnostics()
            raise Inconclusive(
                f'The export "{self.path}" holds no CUDA calls (no table {RUNTIME}).',
                seen=seen[0] if seen else "",
                fix="Record with --trace=cuda,nvtx, and with the process that uses CUDA running in that time.",
            )
        for table, needed in _NEEDED.items():
            lacking = needed - self.columns.get(table, needed)
            if lacking:
                raise Inconclusive(
                    f'Table {table} of "{self.path}" lacks the column {sorted(lacking)[0]}.',
                    seen=f"schema {self._version()}",
                    fix=_EXPORT_FIX,
                )
        if "StringIds" not in self.columns:
            raise Inconclusive(f'"{self.path}" has no StringIds: names of calls are lost.', fix=_EXPORT_FIX)

    # meta data

    def _meta(self, table: str, name: str) -> str:
        if not {"name", "value"} <= self.columns.get(table, set()):
            return ""
        row = self.database.execute(
            f"SELECT value FROM source.{table} WHERE name LIKE ? ORDER BY length(name) LIMIT 1", (name,)
        ).fetchone()
        return str(row[0]) if row and row[0] is not None else ""

    def _version(self) -> str:
        table = "META_DATA_EXPORT" if "META_DATA_EXPORT" in self.columns else "EXPORT_META_DATA"
        product, schema = self._meta(table, "EXPORT_PRODUCT_VERSION"), self._meta(table, "EXPORT_SCHEMA_VERSION")
        if schema and not schema.startswith("3.") and not any("schema" in said for said in self.missing):
            self.missing.append(
                f"the export has schema {schema[:12]}; only 3.x is known, so tables may mean other things"
            )
        return f"nsys {product[:24] or 'of unknown version'}, schema {schema[:12] or 'unknown'}"

    def _mode(self) -> str:
        said = self._meta("META_DATA_CAPTURE", "%CUDA_GRAPH_TRACE_OPTIONS:MODE").lower()
        if GRAPH_TRACE in self.columns:
            return "graph"
        if said == "graph":
            self._say_if_launched(
                "the trace was recorded in graph mode, and its version exports no rows of whole graphs"
            )
            return "graph"
        seen = self.database.execute("SELECT 1 FROM activity WHERE graph IS NOT NULL LIMIT 1").fetchone()
        return "node" if seen or said == "node" else "unknown"

    def _say_if_launched(self, sentence: str) -> None:
        if self.database.execute(f"SELECT 1 FROM call WHERE kind = {Kind.GRAPH_LAUNCH} LIMIT 1").fetchone():
            self.missing.append(f"{sentence}: GPU time of graphs is not known")

    def _diagnostics(self) -> list[str]:
        if "text" not in self.columns.get("DIAGNOSTIC_EVENT", set()):
            return []
        told = []
        for (text,) in self.database.execute("SELECT DISTINCT text FROM source.DIAGNOSTIC_EVENT"):
            found = next((m for p in _TOLD_DIAGNOSTICS if (m := p.search(str(text)))), None)
            if found:
                told.append(f'the profiler said: "{" ".join(found.group().split())[:160]}"')
        return told

    def _lanes(self) -> dict[int, str]:
        rows = self.database.execute("SELECT DISTINCT process FROM call ORDER BY 1").fetchall()
        return {process: f"process {process >> 24 & 0xFFFFFF}" for (process,) in rows}

    def _string(self, identity: int) -> str:
        if identity not in self.strings:
            row = self.database.execute("SELECT value FROM source.StringIds WHERE id = ?", (identity,)).fetchone()
            self.strings[identity] = str(row[0]) if row else ""
        return self.strings[identity]

    def _kernel_name(self, origin: str, first: int) -> str:
        if origin != f"source.{KERNEL}" or "shortName" not in self.columns[KERNEL]:
            return ""
        row = self.database.execute(f"SELECT shortName FROM {origin} WHERE rowid = ?", (first,)).fetchone()
        return self._string(row[0]) if row else ""

    # ranges

    def _ranges(self, own: labels.Family | None) -> tuple[list[Range], list[CaptureLabel], int, list[str]]:
        """Step ranges, capture ranges, and how many other labels there are, with some that look like a step's."""
        if "NVTX_EVENTS" not in self.columns:
            self.missing.append("no NVTX ranges were recorded (no table NVTX_EVENTS)")
            return [], [], 0, []
        steps: list[Range] = []
        captures: list[CaptureLabel] = []
        unmatched, near = 0, dict[str, None]()
        read: dict[str, tuple[labels.Label | None, tuple[int, str] | None]] = {}
        (last,) = self.database.execute(f"SELECT max(end) FROM source.{RUNTIME}").fetchone()
        text = "coalesce(n.text, s.value)" if "textId" in self.columns["NVTX_EVENTS"] else "n.text"
        join = "LEFT JOIN source.StringIds s ON s.id = n.textId" if "textId" in self.columns["NVTX_EVENTS"] else ""
        for start, end, thread, label in self.database.execute(
            f"SELECT n.start, n.end, n.globalTid, {text} FROM source.NVTX_EVENTS n {join}"
            f" WHERE n.eventType IN ({_RANGE_TYPES}) AND n.globalTid IS NOT NULL"
        ):
            if not (isinstance(label, str) and isinstance(start, int) and isinstance(thread, int)) or start < 0:
                unmatched += 1
                continue
            known = read.get(label)
            if known is None:
                known = labels.read(label, own), labels.capture_bucket(label)
                if len(read) < 100_000:
                    read[label] = known
            step, capture = known
            whole = isinstance(end, int) and end >= start
            end = end if whole else max(start, last or start)
            if capture:
                captures.append(CaptureLabel(thread, start, end, *capture))
            elif step:
                steps.append(Range(thread & ~0xFFFFFF, thread, start, end, step, whole))
            else:
                unmatched += 1
                if len(near) < 3 and labels.looks_like_a_step(label):
                    near[labels.strip(label)[:60]] = None
        return steps, captures, unmatched, list(near)

    def _ranges_missing(self, steps: int, unmatched: int) -> None:
        if "NVTX_EVENTS" in self.columns and not steps and not unmatched:
            self.missing.append(
                "NVTX domains were recorded but no range: the profiler dropped them (nsys 2024.2 does so with Python "
                "nvtx "
                "0.2.12 and newer; use another nsys, or nvtx 0.2.11)"
            )

    # calls and GPU activities

    def _calls(self) -> None:
        self.database.execute("CREATE TEMP TABLE api (id INTEGER PRIMARY KEY, kind INTEGER)")
        names = self.database.execute("SELECT id, value FROM source.StringIds WHERE value GLOB 'cu[A-Zd]*'")
        self.database.executemany(
            "INSERT OR REPLACE INTO api VALUES (?, ?)",
            [(i, int(kind_of(name))) for i, name in names.fetchall() if is_api_name(str(name))],
        )
        driver = "r.eventClass = 1" if "eventClass" in self.columns[RUNTIME] else "0"
        self.database.execute(
            "INSERT INTO call (process, thread, start, end, kind, driver, correlation, result, api)"
            f" SELECT r.globalTid & ~0xFFFFFF, r.globalTid, r.start, r.end, coalesce(a.kind, {Kind.OTHER}), {driver},"
            " r.correlationId, r.returnValue, r.nameId"
            f" FROM source.{RUNTIME} r LEFT JOIN api a ON a.id = r.nameId WHERE r.globalTid IS NOT NULL"
        )

    def _activities(self) -> None:
        if KERNEL not in self.columns and GRAPH_TRACE not in self.columns:
            self.missing.append("no GPU activity was recorded (no kernel rows): only what the host launched is known")
        for table in (KERNEL, *COPIES):
            if {"start", "end", "streamId", "correlationId", "globalPid"} <= self.columns.get(table, set()):
                self._group(table)
        if GRAPH_TRACE in self.columns:
            self.database.execute(
                "INSERT INTO activity SELECT globalPid, correlationId, streamId, streamId, 0, 1, nullif(start, 0),"
                f" nullif(end, 0), end - start, graphExecId, 1, '', 0, 0 FROM source.{GRAPH_TRACE}"
            )

    def _group(self, table: str) -> None:
        """Add the rows of a table up by launching call.

        The graph is taken from any row of a group, without an aggregate: all nodes of a launch are of one graph.
        """
        kernels = "count(*)" if table == KERNEL else "0"
        # One key column less to sort by, where that is possible, is a third of the time.
        processes = self.database.execute("SELECT DISTINCT process FROM call LIMIT 2").fetchall()
        keys = "correlationId" if len(processes) == 1 else "globalPid, correlationId"
        select = (
            f"SELECT globalPid, correlationId, min(streamId), max(streamId), {kernels}, count(*), min(start), max(end),"
            f" sum(end - start), {self._graph_id(table)}, 0, 'source.{table}', {{rowids}}"
            f" FROM source.{table} WHERE rowid BETWEEN ?1 AND ?2 GROUP BY {keys}"
        )
        add_up(self.database, table, select)

    def _graph_id(self, table: str) -> str:
        """SQL for the graph that launched a row: NULL if none did, '' if its id is not known."""
        columns = self.columns[table]
        if "graphNodeId" not in columns:
            return "NULLIF(graphId, 0)" if "graphId" in columns else "NULL"
        first = self.database.execute(
            f"SELECT graphNodeId >> 32 FROM source.{table} WHERE graphNodeId IS NOT NULL LIMIT 1"
        ).fetchone()
        if first and not first[0]:
            return "graphId" if "graphId" in columns else "CASE WHEN graphNodeId IS NOT NULL THEN '' END"
        return "graphNodeId >> 32"

    # graphs as they are made

    def _graphs_made(self) -> list[GraphMade]:
        made: list[GraphMade] = []
        for table in ("CUDA_GRAPH_EVENTS", "CUDA_GRAPH_NODE_EVENTS"):
            columns = self.columns.get(table, set())
            if not {"start", "globalTid"} <= columns:
                continue
            if "graphNodeId" in columns:
                identity, wanted = "CAST(graphNodeId >> 32 AS TEXT)", "graphNodeId >> 32 > 0"
            elif "graphExecId" in columns:
                identity, wanted = "CAST(graphExecId AS TEXT)", "graphExecId IS NOT NULL"
            else:
                continue
            made += [
                GraphMade(*row)
                for row in self.database.execute(
                    f"SELECT globalTid, min(start), {identity}, count(*) FROM source.{table} WHERE {wanted}"
                    " AND globalTid IS NOT NULL GROUP BY 1, 3 ORDER BY 2"
                )
            ]
        return made
