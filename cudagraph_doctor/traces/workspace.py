"""The tables that all readers fill: ranges, calls, GPU activities, in a temporary SQLite database on disk.

A reader attaches its source read-only as `source`; everything that is written, sorted or indexed lies in the workspace,
so that tens of millions of rows need disk and not memory. `collect.py` reads it.
"""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

_CACHE_KIB = 32 * 1024

_TABLES = """
CREATE TABLE step (
    id INTEGER PRIMARY KEY,    -- position in the list of steps
    process INTEGER NOT NULL,
    thread INTEGER NOT NULL,
    start INTEGER NOT NULL,
    end INTEGER NOT NULL
);
CREATE TABLE call (
    process INTEGER NOT NULL,
    thread INTEGER NOT NULL CHECK (typeof(thread) = 'integer'),
    start INTEGER NOT NULL CHECK (typeof(start) = 'integer'),
    end INTEGER NOT NULL CHECK (typeof(end) = 'integer' AND end >= start),
    kind INTEGER NOT NULL,     -- calls.Kind
    driver INTEGER NOT NULL DEFAULT 0,  -- 1: a call of the driver API
    correlation INTEGER,
    result INTEGER NOT NULL,   -- 0: success
    api INTEGER,               -- id of its name
    captured INTEGER NOT NULL DEFAULT 0,  -- 1: inside a capture of its thread
    step INTEGER,              -- step.id, by the thread and the call's start
    side INTEGER               -- step.id of another thread of the process, by time
);
CREATE TABLE activity (        -- GPU work, added up by launching call (in pieces: add them up again)
    process INTEGER NOT NULL,
    correlation INTEGER,
    stream INTEGER,            -- the lowest and the highest stream of the rows
    last_stream INTEGER,
    kernels INTEGER NOT NULL,  -- how many of the rows are kernels
    rows INTEGER NOT NULL,
    start INTEGER,             -- NULL: no timestamp was recorded
    end INTEGER,
    busy INTEGER NOT NULL,     -- sum of their times
    graph TEXT,                -- id of the graph that launched it, '' if unknown; NULL: no graph, or no such record
    whole INTEGER NOT NULL,    -- 1: the row is a whole graph (graph mode)
    origin TEXT NOT NULL,      -- table that holds the single rows, '' if this is one
    first INTEGER NOT NULL,    -- rowids there; if this is one: id of its name
    last INTEGER NOT NULL
);
"""


@contextlib.contextmanager
def workspace() -> Iterator[sqlite3.Connection]:
    """An empty workspace; its file is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="cudagraph-doctor-") as folder:
        # uri=True: so that ATTACH takes file: addresses with mode=ro.
        database = sqlite3.connect((Path(folder) / "steps.sqlite").as_uri(), uri=True, isolation_level=None)
        try:
            for setting in (
                f"cache_size = -{_CACHE_KIB}",
                "temp_store = FILE",
                "journal_mode = OFF",
                "synchronous = OFF",
                "locking_mode = EXCLUSIVE",
            ):
                database.execute(f"PRAGMA {setting}")
            database.executescript(_TABLES)
            yield database
        finally:
            database.close()
