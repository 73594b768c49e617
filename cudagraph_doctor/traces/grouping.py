"""Adds the rows of a large table up in pieces, on two threads: SQLite works outside of Python's lock.

A piece is small enough to be sorted in memory, so a row of a large table takes no longer than one of a small table.
"""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cudagraph_doctor.traces.workspace import ACTIVITY, prepare

_PIECE = 10_000
_WORKERS = 2


def add_up(database: sqlite3.Connection, source: str, table: str, select: str) -> None:
    """Fill `activity` of the workspace from a table of the source.

    Args:
        database: the workspace; it has the source attached as `source`.
        source: address of the source, as ATTACH takes it.
        table: the table, without `source.`.
        select: what to insert, with `WHERE rowid BETWEEN ? AND ?` in it.
    """
    # Two queries: SQLite finds either end at once, and both together by reading all rows.
    (first,) = database.execute(f"SELECT min(rowid) FROM source.{table}").fetchone()
    (last,) = database.execute(f"SELECT max(rowid) FROM source.{table}").fetchone()
    if first is None:
        return
    if last - first < _PIECE:
        database.execute(f"INSERT INTO activity {select}", (first, last))
        return
    (main,) = (row[2] for row in database.execute("PRAGMA database_list") if row[1] == "main")
    parts = [Path(f"{main}-part{i}") for i in range(_WORKERS)]
    share = -(-(last - first + 1) // _WORKERS)
    bounds = [(first + i * share, min(last, first + (i + 1) * share - 1)) for i in range(_WORKERS)]
    with ThreadPoolExecutor(_WORKERS) as pool:
        for done in [
            pool.submit(_part, part, source, table, select, *b) for part, b in zip(parts, bounds, strict=True)
        ]:
            done.result()
    for part in parts:
        database.execute("ATTACH ? AS part", (part.as_uri(),))
        database.execute("INSERT INTO activity SELECT * FROM part.activity")
        database.execute("DETACH part")
        part.unlink()


def _part(file: Path, source: str, table: str, select: str, first: int, last: int) -> None:
    """One worker: its share of the rows into a file of its own."""
    database = sqlite3.connect(file.as_uri(), uri=True, isolation_level=None)
    try:
        prepare(database)
        database.execute(ACTIVITY)
        database.execute("ATTACH ? AS source", (source,))
        following = f"SELECT min(rowid) FROM source.{table} WHERE rowid >= ?"
        at = first
        while at is not None and at <= last:
            end = min(at + _PIECE - 1, last)
            database.execute(f"INSERT INTO activity {select}", (at, end))
            (at,) = database.execute(following, (end + 1,)).fetchone()
    finally:
        database.close()
