"""The tables are those that the docs tell of, and change no more without another version."""

from __future__ import annotations

import hashlib
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from cudagraph_doctor.replays import schema, store
from cudagraph_doctor.replays.model import SMALL_BYTES, History

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "run-store.md").read_text()
QUERIES = re.findall(r"```sql\n(.*?)```", PAGE, flags=re.DOTALL)


def test_the_tables_are_those_of_this_version() -> None:
    # Somebody has stores with these tables: a change of the model has to raise SCHEMA_VERSION, and this number.
    made = hashlib.sha256(schema.script().encode()).hexdigest()[:12]
    assert (schema.SCHEMA_VERSION, made) == (2, "868ad0757cc6")


def test_columns_are_fields_or_documented() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \|(.*)\|$", PAGE, flags=re.MULTILINE))
    assert set(rows) == {*schema.COLUMNS, *schema.VIEWS}
    kinds = {table.name: table for table in schema.TABLES}
    for table, columns in schema.COLUMNS.items():
        fields = kinds[table].kind.__dataclass_fields__ if table in kinds else {}
        told = set(re.findall(r"`(\w+)`", rows[table]))
        assert set(columns) - set(fields) - {"run"} <= told, table


def test_the_page_tells_the_numbers() -> None:
    assert hex(schema.APPLICATION_ID) in PAGE and f"{SMALL_BYTES:,} bytes" in PAGE


def test_there_are_queries() -> None:
    assert len(QUERIES) == 4


@pytest.mark.parametrize("query", QUERIES)
def test_queries_of_the_page_run(query: str, tmp_path: Path, made_up: History) -> None:
    file = tmp_path / "runs.db"
    store.save(file, made_up)
    store.save(file, made_up)
    with closing(sqlite3.connect(file)) as connection:
        connection.execute(query.replace("slot_mapping", "slots")).fetchall()


def test_the_first_query_names_what_was_not_fresh(tmp_path: Path, made_up: History) -> None:
    store.save(tmp_path / "runs.db", made_up)
    with closing(sqlite3.connect(tmp_path / "runs.db")) as connection:
        found = connection.execute(QUERIES[0]).fetchall()
    assert [(name, first) for name, _, first, *_ in found] == [("slots", 0), ("lens", 1), ("head.weight", 2)]


def test_json_is_kept_as_text_whatever_it_says() -> None:
    table = schema.PARAMS
    assert table.columns["value"] == "TEXT" and table.columns["pointers"] == "TEXT"
    assert schema.CONTENTS.columns["low"] == ""  # integers and floats, each as it is
