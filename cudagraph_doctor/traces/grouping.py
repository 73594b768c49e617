"""Adds the rows of a large table up in pieces that are sorted in memory.

So a row of a large table takes no longer than one of a small table, and nothing is sorted on disk. Two threads or two
processes were tried and took longer than one on a machine with two cores.
"""

from __future__ import annotations

import sqlite3

_PIECE = 2_000
_SMALL = 400_000
"""Up to so many rows, it is found out exactly where the rows of a group lie; beyond, by piece."""


def add_up(database: sqlite3.Connection, table: str, select: str) -> None:
    """Fill `activity` of the workspace from a table of the source.

    Args:
        database: the workspace; it has the source attached as `source`.
        table: the table, without `source.`.
        select: the first columns of what to insert, `{rowids}` for the last two, and `WHERE rowid BETWEEN ?1 AND ?2`.
    """
    following = f"SELECT min(rowid) FROM source.{table} WHERE rowid >= ?"
    (first,) = database.execute(f"SELECT min(rowid) FROM source.{table}").fetchone()
    (last,) = database.execute(f"SELECT max(rowid) FROM source.{table}").fetchone()
    if first is None:
        return
    # Each aggregate is a tenth of the time.
    rowids = "min(rowid), max(rowid)" if last - first < _SMALL else "?1, ?2"
    statement = f"INSERT INTO activity {select.format(rowids=rowids)}"
    while first is not None:
        database.execute(statement, (first, first + _PIECE - 1))
        (first,) = database.execute(following, (first + _PIECE,)).fetchone()
