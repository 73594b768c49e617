"""A trace that may be shown to others: no host, user, path, environment, or other process in it, and small.

What `buckets` reads is kept as it was recorded; all else is left out, so a table that nobody thought of cannot leak.
"""

from __future__ import annotations

import gzip
import json
import os
import sqlite3
from pathlib import Path
from typing import Any

_ROWS_OF_PROCESSES = {
    "CUPTI_ACTIVITY_KIND_RUNTIME": "globalTid",
    "CUPTI_ACTIVITY_KIND_KERNEL": "globalPid",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "globalPid",
    "CUPTI_ACTIVITY_KIND_MEMSET": "globalPid",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "globalPid",
    "CUDA_GRAPH_EVENTS": "globalTid",
    "CUDA_GRAPH_NODE_EVENTS": "globalTid",
    "NVTX_EVENTS": "globalTid",
}
"""Tables that are kept, with the column that tells the process."""
_STRINGS = ("nameId", "shortName", "textId")
"""Columns whose strings are kept; names with template arguments are replaced by the short ones."""
_DROPPED = ("demangledName", "mangledName", "callchainId", "jsonText", "jsonTextId", "binaryData")
_META = {
    "META_DATA_EXPORT": ("EXPORT_PRODUCT_VERSION", "EXPORT_SCHEMA_VERSION%"),
    "EXPORT_META_DATA": ("EXPORT_PRODUCT_VERSION", "EXPORT_SCHEMA_VERSION%"),
    "META_DATA_CAPTURE": ("%CUDA_GRAPH_TRACE_OPTIONS:MODE",),
}
_CATEGORIES = {"cuda_runtime", "cuda_driver", "kernel", "gpu_memcpy", "gpu_memset", "user_annotation"}
_ARGUMENTS = {"correlation", "stream", "device", "graph id", "graph node id", "cbid"}


def scrub(trace: Path) -> None:
    """Replace the trace by a scrubbed one. A file that is neither form raises what its reader raises."""
    draft = trace.with_name(f".{trace.name}.{os.getpid()}")
    try:
        if trace.suffix == ".sqlite":
            _export(trace, draft)
        else:
            _profile(trace, draft)
        os.replace(draft, trace)
    finally:
        draft.unlink(missing_ok=True)


def _export(trace: Path, draft: Path) -> None:
    database = sqlite3.connect(draft.resolve().as_uri(), uri=True, isolation_level=None)
    try:
        database.execute("PRAGMA journal_mode = OFF")
        database.execute("ATTACH ? AS source", (f"{trace.resolve().as_uri()}?mode=ro&immutable=1",))
        layouts = dict(database.execute("SELECT name, sql FROM source.sqlite_master WHERE type = 'table'").fetchall())
        database.execute("CREATE TEMP TABLE used (id INTEGER PRIMARY KEY)")
        for table, owner in _ROWS_OF_PROCESSES.items():
            if table in layouts:
                _copy_rows(database, table, owner, layouts[table])
        for table, names in _META.items():
            if table in layouts:
                database.execute(layouts[table])
                wanted = " OR ".join(["name LIKE ?"] * len(names))
                database.execute(f"INSERT INTO main.{table} SELECT * FROM source.{table} WHERE {wanted}", names)
        database.execute(layouts["StringIds"])
        database.execute("INSERT INTO main.StringIds SELECT * FROM source.StringIds WHERE id IN used")
        database.execute("DETACH source")
        database.execute("VACUUM")
    finally:
        database.close()


def _copy_rows(database: sqlite3.Connection, table: str, owner: str, layout: str) -> None:
    columns = [row[1] for row in database.execute(f"PRAGMA source.table_info({table})")]
    replaced = {name: "shortName" if name == "demangledName" else "NULL" for name in _DROPPED if name in columns}
    selected = ", ".join(replaced.get(name, name) for name in columns)
    database.execute(layout)
    database.execute(
        f"INSERT INTO main.{table} SELECT {selected} FROM source.{table} WHERE {owner} & ~0xFFFFFF IN"
        " (SELECT DISTINCT globalTid & ~0xFFFFFF FROM source.CUPTI_ACTIVITY_KIND_RUNTIME)"
    )
    for name in _STRINGS:
        if name in columns:
            database.execute(f"INSERT OR IGNORE INTO used SELECT {name} FROM main.{table} WHERE {name} IS NOT NULL")


def _profile(trace: Path, draft: Path) -> None:
    import ijson  # only here: exports of nsys need no JSON library

    with gzip.open(trace, "rb") as file, gzip.GzipFile(draft, "wb", mtime=0) as out:
        out.write(b'{"schemaVersion": 1, "traceEvents": [\n')
        separator = b""
        for event in ijson.items(file, "traceEvents.item", use_float=True):
            kept = _event(event)
            if kept:
                out.write(separator + json.dumps(kept).encode())
                separator = b",\n"
        out.write(b"\n]}\n")


def _event(event: dict[str, Any]) -> dict[str, Any] | None:
    if event.get("cat") not in _CATEGORIES:
        return None
    kept: dict[str, Any] = {
        name: event[name] for name in ("ph", "cat", "name", "pid", "tid", "ts", "dur") if name in event
    }
    kept["args"] = {name: value for name, value in event.get("args", {}).items() if name in _ARGUMENTS}
    return kept
