"""Adds the rows of a large table up in pieces that are sorted in memory.

So a row of a large table takes no longer than one of a small table, and nothing is sorted on disk. Two threads or two
processes were tried and took longer than one on a machine with two cores.
"""

from __future__ import annotations

import sqlite3

_PIECE = 10_000


def add_up(database: sqlite3.Connection, table: str, select: str) -> None:
    """Fill `activity` of the workspace from a table of the source.

    Args:
        database: the workspace; it has the source attached as `source`.
        table: the table, without `source.`.
        select: what to insert, with `WHERE rowid BETWEEN ? AND ?` in it.
    """
    following = f"SELECT min(rowid) FROM source.{table} WHERE rowid >= ?"
    (first,) = database.execute(f"SELECT min(rowid) FROM source.{table}").fetchone()
    while first is not None:
        database.execute(f"INSERT INTO activity {select}", (first, first + _PIECE - 1))
        (first,) = database.execute(following, (first + _PIECE,)).fetchone()
