"""The workspace lies on disk, and is gone afterwards."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from cudagraph_doctor.traces.workspace import workspace


def test_gone_afterwards() -> None:
    with workspace() as database:
        (file,) = (Path(row[2]) for row in database.execute("PRAGMA database_list"))
        assert file.exists()
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
        assert tables == {"step", "call", "activity"}
    assert not file.parent.exists()
    with pytest.raises(sqlite3.ProgrammingError):
        database.execute("SELECT 1")


def test_a_source_can_be_attached_read_only(tmp_path: Path) -> None:
    source = tmp_path / "s p a c e ?#.sqlite"
    with sqlite3.connect(source) as made:
        made.execute("CREATE TABLE t (a)")
    with workspace() as database:
        database.execute("ATTACH ? AS source", (source.as_uri() + "?mode=ro&immutable=1",))
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            database.execute("INSERT INTO source.t VALUES (1)")
