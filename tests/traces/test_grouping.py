"""Adding up in pieces gives what adding up at once gives."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

import pytest

from cudagraph_doctor.traces import grouping
from cudagraph_doctor.traces.workspace import workspace

SELECT = (
    "SELECT pid, corr, min(stream), max(stream), count(*), count(*), min(start), max(end), sum(end - start), NULL, 0,"
    " 'source.k', {rowids} FROM source.k WHERE rowid BETWEEN ?1 AND ?2 GROUP BY pid, corr"
)
SUMS = (
    "SELECT process, correlation, min(stream), max(last_stream), sum(rows), min(start), max(end), sum(busy)"
    " FROM activity GROUP BY 1, 2 ORDER BY 1, 2"
)


@pytest.mark.parametrize("rows", [0, 1, 9, 10, 11, 500])
@pytest.mark.parametrize("gap", [1, 1000])
def test_pieces(rows: int, gap: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(rows)
    source = tmp_path / "source.sqlite"
    with sqlite3.connect(source) as made:
        made.execute("CREATE TABLE k (pid INTEGER, corr INTEGER, stream INTEGER, start INTEGER, end INTEGER)")
        for i in range(rows):
            values = (draw.randrange(2), draw.randrange(20), draw.randrange(3), i, i + draw.randrange(9))
            made.execute(
                "INSERT INTO k (rowid, pid, corr, stream, start, end) VALUES (?, ?, ?, ?, ?, ?)", (1 + i * gap, *values)
            )
    results = []
    for piece, small in ((10, 0), (10, 10**9), (10**9, 0)):
        monkeypatch.setattr(grouping, "_PIECE", piece)
        monkeypatch.setattr(grouping, "_SMALL", small)
        with workspace() as database:
            database.execute("ATTACH ? AS source", (source.as_uri() + "?mode=ro",))
            grouping.add_up(database, "k", SELECT)
            results.append(database.execute(SUMS).fetchall())
            inside = "SELECT count(*) FROM activity a JOIN source.k ON k.pid = a.process AND k.corr = a.correlation"
            (found,) = database.execute(f"{inside} WHERE k.rowid BETWEEN a.first AND a.last").fetchone()
            assert found == rows  # each row lies where its group says
    assert results[0] == results[1] == results[2]
    assert sum(row[4] for row in results[0]) == rows
