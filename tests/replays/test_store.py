"""The run store: what is written is read again, the views answer, and what is no store is refused in words."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlite_utils import Database

from cudagraph_doctor.errors import UsageError
from cudagraph_doctor.findings import Culprit, Finding, Location, Proof, Severity
from cudagraph_doctor.replays import schema, store
from cudagraph_doctor.replays.model import Content, History

FINDING = Finding(
    "CGD301",
    "slots is never refreshed",
    Severity.ERROR,
    Proof.CONFIRMED,
    "copy it",
    Culprit("input", "slots"),
    Location("serve.py", 31, "stage"),
    step=0,
    key="4",
)


@pytest.fixture
def saved(tmp_path: Path, made_up: History) -> Path:
    file = tmp_path / "runs.db"
    assert store.save(file, made_up, [FINDING]) == 1
    return file


def rows(file: Path, sql: str) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(file)) as connection:
        return list(Database(connection).query(sql))


def test_what_is_written_is_read_again(saved: Path, made_up: History) -> None:
    assert store.load(saved) == made_up


def test_runs_are_added_and_the_last_one_is_read_unless_another_is_named(saved: Path, made_up: History) -> None:
    other = replace(made_up, run=replace(made_up.run, seed=8), readings=made_up.readings[:2], trials=())
    assert store.save(saved, other) == 2
    assert store.load(saved) == other and store.load(saved, 1) == made_up
    with pytest.raises(UsageError, match=r"has no run 3\.(.|\n)*its runs: 1, 2"):
        store.load(saved, 3)


def test_a_run_that_was_not_written_to_its_end_is_not_seen_and_makes_way(
    saved: Path, made_up: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> Any:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(store, "_finding_row", full)
        with pytest.raises(UsageError, match=r"cannot be written\.(.|\n)*disk is full"):
            store.save(saved, made_up, [FINDING])
    assert store.load(saved) == made_up
    assert store.save(saved, made_up) == 2
    assert store.load(saved, 2) == made_up


def test_without_values_nobody_can_read_what_memory_held(tmp_path: Path, made_up: History) -> None:
    file = tmp_path / "runs.db"
    store.save(file, made_up, values=False)
    found = store.load(file)
    contents = [c for r in found.readings for c in (r.held, r.expected, r.live) if c is not None]
    assert all((c.data, c.low, c.high) == (None, None, None) for c in contents)
    assert [r.held.hash for r in found.readings] == [r.held.hash for r in made_up.readings]
    assert [(f.held, f.expected) for f in found.flags] == [(None, None)] * len(found.flags)
    assert found.flags[0].evidence == {"n": 5}
    assert found == store.without_contents(made_up)


def test_numbers_that_sqlite_has_no_room_for(tmp_path: Path, made_up: History) -> None:
    held = Content(8, "ff", "uint64", (1,), 0, 2**64 - 1, b"\xff" * 8)
    infinite = Content(4, "fe", "float32", (1,), float("-inf"), float("inf"), b"\x00\x00\x80\x7f")
    odd = replace(made_up.readings[0], held=held, expected=infinite)
    file = tmp_path / "runs.db"
    store.save(file, replace(made_up, readings=(odd,)))
    [found] = store.load(file).readings
    assert found.held.high == float(2**64) and found.expected == infinite


# asked with SQL


def test_findings_are_rows_and_json(saved: Path) -> None:
    [row] = rows(saved, "select * from findings")
    assert (row["code"], row["culprit"], row["file"], row["line"]) == ("CGD301", "slots", "serve.py", 31)
    assert json.loads(row["whole"])["fingerprint"] == row["fingerprint"] == FINDING.fingerprint


def test_observations_tell_hash_bounds_and_whether_it_changed_and_is_fresh(saved: Path) -> None:
    found = rows(saved, "select * from observations where name = 'slots'")
    assert [(r["step"], r["min"], r["max"], r["changed"], r["equals_fresh"]) for r in found] == [
        (0, 9, 9, None, 0), (1, 9, 9, 0, 0), (2, 9, 9, 0, 0)
    ]  # fmt: skip
    assert [r["fresh_max"] for r in found] == [48, 33, 50]
    assert {(r["written_file"], r["written_line"]) for r in found} == {("serve.py", 31)}
    [unknown, *_] = rows(saved, "select * from observations where name = 'k_cache'")
    assert unknown["equals_fresh"] is None


def test_frozen(saved: Path) -> None:
    assert [(r["name"], r["step"]) for r in rows(saved, "select name, step from frozen order by name, step")] == [
        ("head.weight", 2), ("slots", 1), ("slots", 2)
    ]  # fmt: skip


def test_inputs_in_numbers(saved: Path) -> None:
    found = {r["name"]: r for r in rows(saved, "select * from inputs")}
    assert (found["slots"]["replays"], found["slots"]["changed"], found["slots"]["not_fresh"]) == (3, 0, 3)
    assert (found["lens"]["not_fresh"], found["lens"]["first_step_not_fresh"]) == (1, 1)
    assert (found["rows"]["not_fresh"], found["rows"]["first_step_not_fresh"]) == (0, None)


def test_who_reads(saved: Path) -> None:
    [row] = rows(saved, "select * from who_reads")
    assert (row["region"], row["kernel"], row["argument"]) == ("slots", "scale_rows", "slots")
    assert (row["file"], row["line"], row["reads"], row["writes"]) == ("model.py", 12, 1, 0)


def test_flagged(saved: Path) -> None:
    found = rows(saved, "select * from flagged order by flag")
    assert [(r["code"], r["healed"]) for r in found] == [("CGD301", 1), ("CGD320", 0), ("CGD308", 0)]
    assert (found[1]["kernel"], found[1]["param"], json.loads(found[1]["expected"])) == ("scale_rows", 1, 6.0)


def test_all_views_can_be_asked(saved: Path) -> None:
    assert {view: len(rows(saved, f"select * from {view}")) for view in schema.VIEWS} == {
        "observations": 13, "frozen": 3, "inputs": 5, "who_reads": 1, "flagged": 3
    }  # fmt: skip


# what is refused


def nothing(file: Path) -> None:
    file.unlink()


def text(file: Path) -> None:
    file.write_text("a report, perhaps, but no database; " * 100)


def another_database(file: Path) -> None:
    file.unlink()
    Database(file)["dogs"].insert({"name": "Cleo"})


def truncated(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def cut_to_a_header(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:64])


def newer(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute(f"pragma user_version = {schema.SCHEMA_VERSION + 1}")


def older(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("pragma user_version = 0")


def emptied(file: Path) -> None:
    Database(file)["runs"].delete_where()


def edited(file: Path) -> None:
    database = Database(file)
    database.execute("update readings set held = 1000")
    database.conn.commit()


def half_json(file: Path) -> None:
    database = Database(file)
    database.execute("update regions set shape = '[4'")
    database.conn.commit()


BROKEN: list[tuple[Callable[[Path], None], str]] = [
    (nothing, "There is no file"),
    (text, "is no SQLite database"),
    (another_database, "is a SQLite database, but no run store"),
    (truncated, "truncated, damaged or in use"),
    (cut_to_a_header, "SQLite database"),
    (newer, r"schema version 3; this version reads 2(.|\n)*Upgrade"),
    (older, r"schema version 0; this version reads 2(.|\n)*Store the run anew"),
    (emptied, "holds no run"),
    (edited, r"Run 1 (.|\n)*cannot be read(.|\n)*IndexError"),
    (half_json, r"Run 1 (.|\n)*cannot be read(.|\n)*JSONDecodeError"),
]


@pytest.mark.parametrize(("broken", "message"), BROKEN, ids=[broken.__name__ for broken, _ in BROKEN])
def test_what_cannot_be_read_is_refused_in_words(saved: Path, broken: Callable[[Path], None], message: str) -> None:
    broken(saved)
    with pytest.raises(UsageError, match=message) as refused:
        store.load(saved)
    assert refused.value.fix


@pytest.mark.parametrize("broken", [text, another_database, truncated, newer], ids=lambda broken: broken.__name__)
def test_what_is_no_store_is_not_written_over(saved: Path, broken: Callable[[Path], None], made_up: History) -> None:
    broken(saved)
    before = saved.read_bytes()
    with pytest.raises(UsageError):
        store.check_writable(saved)
    with pytest.raises(UsageError):
        store.save(saved, made_up)
    assert saved.read_bytes() == before


def test_a_store_is_not_made_in_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        store.check_writable(tmp_path / "nowhere" / "runs.db")
    with pytest.raises(UsageError, match="is a folder"):
        store.check_writable(tmp_path)
    store.check_writable(tmp_path / "runs.db")
    assert not (tmp_path / "runs.db").exists()


def test_an_empty_file_becomes_a_store(tmp_path: Path, made_up: History) -> None:
    file = tmp_path / "runs.db"
    file.touch()
    assert store.save(file, made_up) == 1 and store.load(file) == made_up


def test_stores_are_read_without_torch() -> None:
    program = "import sys; from cudagraph_doctor.replays import options; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
