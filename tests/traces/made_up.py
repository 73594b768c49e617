"""A made-up decode loop, written down as nsys (any schema, either mode) or torch.profiler would have recorded it.

`MadeUp` keeps a clock and lists of calls, GPU work and ranges; `nsys` and `kineto` write them. Times are nanoseconds.
"""

from __future__ import annotations

import gzip
import json
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SCHEMAS = ("3.0.0", "3.7.2", "3.11.1", "3.16.1", "3.20.3", "3.24.14", "3.25.0")
"""Export schemas that were seen, and that are imitated."""


def minor(schema: str) -> int:
    return int(schema.split(".")[1])


@dataclass
class Call:
    process: int
    thread: int
    start: int
    end: int
    name: str
    correlation: int
    result: int = 0


@dataclass
class Work:
    """GPU work of one call: a kernel, a copy, or a node of a graph."""

    process: int
    correlation: int
    stream: int
    start: int
    end: int
    name: str = "kernel"
    node: int | None = None
    """graph id << 32 | node, if a graph launched it."""
    kind: str = "kernel"


@dataclass
class Range:
    process: int
    thread: int
    start: int
    end: int | None
    text: str


@dataclass
class GraphEvent:
    process: int
    thread: int
    time: int
    graph: int
    is_exec: bool
    nodes: int


@dataclass
class MadeUp:
    """One or more processes with a decode loop each."""

    process: int = 4711
    thread: int = 4711
    now: int = 1_000_000
    calls: list[Call] = field(default_factory=list)
    work: list[Work] = field(default_factory=list)
    ranges: list[Range] = field(default_factory=list)
    events: list[GraphEvent] = field(default_factory=list)
    nodes: dict[int, int] = field(default_factory=dict)
    """Executable graph -> kernels in it."""
    correlation: int = 0
    next_graph: int = 0
    gpu_free: int = 0
    host_speed: float = 1.0

    # single acts

    def call(self, name: str, duration: int = 2_000, result: int = 0, gap: int = 1_000) -> Call:
        self.correlation += 1
        start = self.now + int(gap * self.host_speed)
        end = start + int(duration * self.host_speed)
        call = Call(self.process, self.thread, start, end, name, self.correlation, result)
        self.now = end
        self.calls.append(call)
        return call

    def run(self, call: Call, duration: int = 5_000, stream: int = 7, **more: Any) -> None:
        """GPU work of a call, after what the GPU does already."""
        start = max(call.end, self.gpu_free)
        self.gpu_free = start + duration
        self.work.append(Work(self.process, call.correlation, stream, start, start + duration, **more))

    def launch(self, name: str = "cudaLaunchKernel_v7000", kernel: str = "elementwise", **more: Any) -> None:
        self.run(self.call(name), name=kernel, **more)

    def copy(self, duration: int = 3_000) -> None:
        self.run(self.call("cudaMemcpyAsync_v3020", duration), 1_000, kind="memcpy")

    def wait(self) -> None:
        """The host waits for the GPU."""
        call = self.call("cudaStreamSynchronize_v3020", 1_000)
        call.end = max(call.end, self.gpu_free)
        self.now = call.end

    def replay(self, graph: int, name: str = "cudaGraphLaunch_v10000", streams: tuple[int, ...] = (7,)) -> None:
        call = self.call(name, 8_000)
        for node in range(self.nodes[graph]):
            self.run(
                call, stream=streams[node % len(streams)], node=graph << 32 | node, name=f"graph_kernel_{node % 5}"
            )

    def capture(self, kernels: int = 40, bucket: int | None = None, result: int = 0, label: str = "") -> int:
        """Capture and instantiate a graph; returns its id. `bucket` puts a labelled range around it."""
        start = self.now
        self.call("cudaStreamBeginCapture_v10000")
        template = self.next_graph + 1
        self.events.append(GraphEvent(self.process, self.thread, self.now - 500, template, False, kernels))
        for _ in range(kernels):
            self.call("cudaLaunchKernel_v7000")  # runs nothing
        self.call("cudaStreamEndCapture_v10000", result=result)
        graph = self.next_graph = self.next_graph + 2
        if not result:
            call = self.call("cudaGraphInstantiateWithFlags_v11040", 50_000)
            self.events.append(GraphEvent(self.process, self.thread, call.start + 100, graph, True, kernels))
            self.nodes[graph] = kernels
        text = label or (f"capture bucket={bucket}" if bucket is not None else "")
        if text:
            self.ranges.append(Range(self.process, self.thread, start, self.now, text))
        return graph

    # steps

    def step(
        self, label: str | None, *graphs: int, loose: int = 3, wait: bool = True, copies: int = 0, **replay: Any
    ) -> None:
        """Loose launches, replays, a wait; `label` None leaves the range out."""
        start = self.now + 100
        self.now = start + 100
        for _ in range(copies):
            self.copy()
        for _ in range(loose):
            self.launch()
        for graph in graphs:
            self.replay(graph, **replay)
        if label is not None:
            self.ranges.append(Range(self.process, self.thread, start, self.now + 100, label))
        self.now += 200
        if wait:
            self.wait()
        self.now += 20_000

    def range_since(self, start: int, text: str) -> None:
        """A range around all that happened since `start`."""
        self.ranges.append(Range(self.process, self.thread, start, self.now, text))
        self.now += 20_000

    def decode(self, number: int, batch: int, bucket: int | None, *graphs: int, **more: Any) -> None:
        """A step with the label of the bundled model."""
        named = f" bucket={bucket}" if bucket is not None else ""
        self.step(f"decode step={number} bs={batch}{named}", *graphs, **more)

    def eager(self, number: int, batch: int, bucket: int | None = None, kernels: int = 45, **more: Any) -> None:
        self.decode(number, batch, bucket, loose=kernels, **more)

    def other_process(self, process: int) -> None:
        """What follows happens in another process, at the same time; correlation ids start again."""
        self.process = self.thread = process
        self.now, self.gpu_free, self.correlation = 1_000_000, 0, 0

    # written down

    def nsys(self, path: Path, schema: str = "3.20.3", mode: str = "node", **options: Any) -> Path:
        """Write an export; see `_Export`."""
        _Export(self, path, schema, mode, **options).write()
        return path

    def kineto(self, path: Path, rank: int | None = None, hip: bool = False, graph_ids: bool = False) -> Path:
        """Write a torch.profiler trace; gzipped if the name says so."""
        events = list(self._kineto_events(hip, graph_ids))
        trace: dict[str, Any] = {"schemaVersion": 1, "deviceProperties": []}
        if rank is not None:
            trace["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": 2, "pg_config": [{"ranks": [0]}]}
        trace |= {"traceEvents": events, "traceName": "made up"}
        text = json.dumps(trace)
        if path.suffix == ".gz":
            path.write_bytes(gzip.compress(text.encode()))
        else:
            path.write_text(text)
        return path

    def _kineto_events(self, hip: bool, graph_ids: bool) -> Any:
        yield {"ph": "M", "name": "process_name", "pid": self.process, "tid": 0, "args": {"name": "python"}}
        for r in self.ranges:
            end = r.end if r.end is not None else r.start
            yield self._event("user_annotation", r.text, r.process, r.thread, r.start, end, {})
            yield self._event("gpu_user_annotation", r.text, 0, 7, r.start + 100, end + 100, {})
        for c in self.calls:
            name = c.name.split("_")[0]
            if hip:
                name = name.replace("cuda", "hip")
            category = "cuda_driver" if c.name.startswith("cu") and not c.name.startswith("cuda") else "cuda_runtime"
            args = {"cbid": 211, "correlation": c.correlation}
            yield self._event(category, name, c.process, c.thread, c.start, c.end, args)
            yield self._event("cpu_op", "aten::mul", c.process, c.thread, c.start - 200, c.end, {"External id": 7})
        for w in self.work:
            args = {"device": 0, "stream": w.stream, "correlation": w.correlation}
            if graph_ids:
                args |= {"graph id": (w.node or 0) >> 32, "graph node id": w.node or 0}
            category = "kernel" if w.kind == "kernel" else f"gpu_{w.kind}"
            yield self._event(category, w.name, 0, w.stream, w.start, w.end, args)

    @staticmethod
    def _event(cat: str, name: str, pid: int, tid: int, start: int, end: int, args: dict[str, Any]) -> dict[str, Any]:
        times = {"ts": start / 1000 + 6.5e12, "dur": (end - start) / 1000}
        return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, **times, "args": args}


def global_id(process: int, thread: int = 0) -> int:
    """nsys's serialized id: 281474976710656 is its hardware id 1."""
    return 1 << 48 | process << 24 | thread


@dataclass
class _Export:
    made_up: MadeUp
    path: Path
    schema: str
    mode: str
    text_ids: bool = True
    """NVTX texts through StringIds, as Python's nvtx writes them; False: inline."""
    without: tuple[str, ...] = ()
    """Tables that are left out."""
    drop_columns: dict[str, str] = field(default_factory=dict)
    """Table -> a column that is left out."""
    diagnostics: tuple[str, ...] = ()
    environment: str = ""
    lost_rows: int = 0
    """Graph rows (GRAPH_TRACE, or groups of node rows) that are left out, from the end."""
    graph_ids: bool = True
    """False: node ids are small numbers, as with old drivers."""
    shuffle: bool = False
    """Rows in no order."""

    def write(self) -> None:
        self.path.unlink(missing_ok=True)
        self.strings: dict[str, int] = {}
        self.database = sqlite3.connect(self.path)
        self._runtime()
        self._gpu()
        self._nvtx()
        self._graph_events()
        self._meta()
        self._table("StringIds", "id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL")
        if "StringIds" not in self.without:
            self.database.executemany("INSERT INTO StringIds VALUES (?, ?)", [(i, s) for s, i in self.strings.items()])
        self.database.commit()
        self.database.close()

    def _string(self, text: str) -> int:
        return self.strings.setdefault(text, len(self.strings) + 1)

    def _table(self, name: str, columns: str) -> None:
        dropped = self.drop_columns.get(name)
        kept = [column for column in columns.split(", ") if column.split()[0] != dropped]
        if name not in self.without:
            self.database.execute(f"CREATE TABLE {name} ({', '.join(kept)})")

    def _insert(self, table: str, rows: list[dict[str, Any]]) -> None:
        if table in self.without:
            return
        if self.shuffle:
            rows = rows[1::2] + rows[::2]
        for row in rows:
            row.pop(self.drop_columns.get(table, ""), None)
            self.database.execute(
                f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", list(row.values())
            )

    def _runtime(self) -> None:
        event_class = "eventClass INTEGER NOT NULL, "
        self._table(
            "CUPTI_ACTIVITY_KIND_RUNTIME",
            f"start INTEGER NOT NULL, end INTEGER NOT NULL, {event_class}globalTid INTEGER, correlationId INTEGER, "
            "nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, callchainId INTEGER",
        )
        self._insert(
            "CUPTI_ACTIVITY_KIND_RUNTIME",
            [
                {
                    "start": c.start,
                    "end": c.end,
                    "eventClass": int(not c.name.startswith("cuda")),
                    "globalTid": global_id(c.process, c.thread),
                    "correlationId": c.correlation,
                    "nameId": self._string(c.name),
                    "returnValue": c.result,
                }
                for c in self.made_up.calls
            ],
        )

    def _gpu(self) -> None:
        green = "greenContextId INTEGER, " if minor(self.schema) >= 7 else ""
        where = f"deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, {green}streamId INTEGER NOT NULL"
        times = "start INTEGER NOT NULL, end INTEGER NOT NULL"
        graph_id = ", graphId INTEGER" if minor(self.schema) >= 24 else ""
        in_graph_mode = self.mode == "graph"
        rows: dict[str, list[dict[str, Any]]] = {"KERNEL": [], "MEMCPY": [], "GRAPH_TRACE": []}
        whole: dict[tuple[int, int], dict[str, Any]] = {}
        launched = list(dict.fromkeys((w.process, w.correlation) for w in self.made_up.work if w.node is not None))
        lost = set(launched[len(launched) - self.lost_rows :]) if self.lost_rows else set()
        for w in self.made_up.work:
            if w.node is not None and (w.process, w.correlation) in lost:
                continue
            row: dict[str, Any] = {
                "start": w.start,
                "end": w.end,
                "deviceId": 0,
                "contextId": 1,
                "streamId": w.stream,
                "correlationId": w.correlation,
                "globalPid": global_id(w.process),
            }
            if w.node is not None and in_graph_mode:
                entry = whole.setdefault((w.process, w.correlation), row | {"graphId": (w.node >> 32) - 1})
                entry |= {"end": w.end, "graphExecId": w.node >> 32}
            elif w.kind == "kernel":
                node = w.node if self.graph_ids or w.node is None else w.node & 0xFFFFFFFF
                row |= {"graphNodeId": node, "shortName": self._string(w.name), "demangledName": self._string(w.name)}
                rows["KERNEL"].append(row | ({"graphId": w.node and w.node >> 32} if graph_id else {}))
            else:
                rows["MEMCPY"].append(row | {"graphNodeId": w.node, "bytes": 64, "copyKind": 1})
        rows["GRAPH_TRACE"] = list(whole.values()) if minor(self.schema) >= 11 else []
        ids = "correlationId INTEGER, globalPid INTEGER"
        layouts = {
            "KERNEL": f"{times}, {where}, {ids}, demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, "
            f"graphNodeId INTEGER{graph_id}",
            "MEMCPY": f"{times}, {where}, {ids}, bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL, "
            "graphNodeId INTEGER",
            "GRAPH_TRACE": f"{times}, {where}, {ids}, graphId INTEGER NOT NULL, graphExecId INTEGER NOT NULL",
        }
        for name, layout in layouts.items():
            if rows[name]:  # lazily: a table with no rows does not exist
                self._table(f"CUPTI_ACTIVITY_KIND_{name}", layout)
                self._insert(f"CUPTI_ACTIVITY_KIND_{name}", rows[name])

    def _nvtx(self) -> None:
        self._table(
            "NVTX_EVENTS",
            "start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, category INTEGER, "
            "color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER",
        )
        rows: list[dict[str, Any]] = [
            {"start": 1, "eventType": 75, "text": "engine", "globalTid": global_id(1, 1), "domainId": 3}
        ]
        for r in self.made_up.ranges:
            text = {"textId": self._string(r.text)} if self.text_ids else {"text": r.text}
            thread = global_id(r.process, r.thread)
            rows.append({"start": r.start, "end": r.end, "eventType": 59, "globalTid": thread, "domainId": 3} | text)
        self._insert("NVTX_EVENTS", rows)

    def _graph_events(self) -> None:
        common = "start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, globalTid INTEGER, "
        node_table = "CUDA_GRAPH_NODE_EVENTS" if minor(self.schema) >= 11 else "CUDA_GRAPH_EVENTS"
        if not self.made_up.events:
            return
        if self.mode == "node":
            self._table(
                node_table,
                common + "nameId INTEGER NOT NULL, graphNodeId INTEGER NOT NULL, originalGraphNodeId INTEGER",
            )
            rows = [
                self._instant(e, 77, {"graphNodeId": e.graph << 32 | node if self.graph_ids else node})
                for e in self.made_up.events
                for node in range(e.nodes)
            ]
            self._insert(node_table, rows)
        elif minor(self.schema) >= 11:
            self._table(
                "CUDA_GRAPH_EVENTS",
                common + "nameId INTEGER NOT NULL, graphId INTEGER, originalGraphId INTEGER, graphExecId INTEGER",
            )
            self._insert(
                "CUDA_GRAPH_EVENTS",
                [
                    self._instant(e, 94, {"graphId": e.graph - 1, "graphExecId": e.graph})
                    if e.is_exec
                    else self._instant(e, 95, {"graphId": e.graph})
                    for e in self.made_up.events
                ],
            )

    def _instant(self, event: GraphEvent, event_class: int, ids: dict[str, int]) -> dict[str, Any]:
        return {
            "start": event.time,
            "end": event.time,
            "eventClass": event_class,
            "globalTid": global_id(event.process, event.thread),
            "nameId": self._string("Graph Creation"),
        } | ids

    def _meta(self) -> None:
        table = "EXPORT_META_DATA" if minor(self.schema) < 7 else "META_DATA_EXPORT"
        self._table(table, "name TEXT NOT NULL, value TEXT")
        self._insert(
            table,
            [
                {"name": "EXPORT_PRODUCT_VERSION", "value": "2025.3.1"},
                {"name": "EXPORT_SCHEMA_VERSION", "value": self.schema},
                {"name": "EXPORT_SCHEMA_VERSION_MAJOR", "value": "3"},
            ],
        )
        if minor(self.schema) >= 7:
            prefix = "PROCESS_0:" if minor(self.schema) < 24 else ""
            self._table("META_DATA_CAPTURE", "name TEXT NOT NULL, value TEXT")
            self._insert(
                "META_DATA_CAPTURE",
                [
                    {"name": f"{prefix}CUDA_GRAPH_TRACE_OPTIONS:MODE", "value": self.mode.capitalize()},
                    {"name": "PROCESS_0:ENVIRONMENT_0", "value": f"HF_TOKEN={self.environment}"},
                ],
            )
        if self.diagnostics:
            self._table("DIAGNOSTIC_EVENT", "timestamp INTEGER NOT NULL, severity INTEGER NOT NULL, text TEXT NOT NULL")
            self._insert("DIAGNOSTIC_EVENT", [{"timestamp": 0, "severity": 2, "text": t} for t in self.diagnostics])
