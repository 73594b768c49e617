"""Logs of every kind, in pieces, and each way in which one can be no log."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cudagraph_doctor.audit import logs
from cudagraph_doctor.audit.keys import Unit
from cudagraph_doctor.audit.logs import Columns, read
from cudagraph_doctor.audit.workload import Workload
from cudagraph_doctor.errors import UsageError

Write = Callable[..., Workload]


@pytest.fixture
def log(tmp_path: Path) -> Write:
    """Writes a file and reads it."""

    def write(text: str | bytes, name: str = "w.csv", **columns: object) -> Workload:
        file = tmp_path / name
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read(file, Columns(**columns))  # type: ignore[arg-type]

    return write


def test_a_row_a_step(log: Write) -> None:
    found = log("time,batch\n0.1,3\n0.2,3\n0.3,0\n0.4,7\n")
    assert found.steps == {3: 2.0, 7: 1.0}
    assert (found.unit, found.rows, found.idle) == (Unit.REQUESTS, 4, 1)
    assert found.not_used == ("1 rows of the workload with batch 0: idle steps",)


@pytest.mark.parametrize(
    "text", ["batch,count\n3,2\n7,1.5\n3,1\n", "count;batch\n2;3\n1.5;7\n1;3\n", "batch\tcount\n3\t3\n7\t1.5\n"]
)
def test_a_histogram(log: Write, text: str) -> None:
    assert log(text).steps == {3: 3.0, 7: 1.5}


def test_columns_by_name(log: Write) -> None:
    assert log("a,b\n1,5\n2,6\n", size="b").steps == {5: 1.0, 6: 1.0}
    assert log("a,b\n1,5\n2,6\n", size="a", weight="b").steps == {1: 5.0, 2: 6.0}
    assert log("num_tokens\n5\n").unit is Unit.TOKENS
    assert log("batch\n5\n", unit=Unit.TOKENS).unit is Unit.TOKENS


def test_no_header_blank_lines_and_a_byte_order_mark(log: Write) -> None:
    assert log("3\n3\n5\n").steps == {3: 2.0, 5: 1.0}
    assert log("\ufeffbatch\n\n3\n\n4\n\n").steps == {3: 1.0, 4: 1.0}
    assert log("batch\r\n3\r\n").steps == {3: 1.0}


def test_jsonl(log: Write) -> None:
    lines = '{"t": 1, "batch": 3}\n\n{"batch": 4, "t": [1, {"a": 2}]}\n'
    assert log(lines, "w.jsonl").steps == {3: 1.0, 4: 1.0}
    assert log("3\n4\n4\n", "w.jsonl").steps == {3: 1.0, 4: 2.0}
    assert log('{"batch": 3, "weight": 2.5}', "w.ndjson").steps == {3: 2.5}


def test_parquet(log: Write, tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"batch": [3, 3, 4], "w": [1.0, 2.0, 3.0]}), tmp_path / "w.parquet")
    assert read(tmp_path / "w.parquet", Columns()).steps == {3: 2.0, 4: 1.0}
    assert read(tmp_path / "w.parquet", Columns(weight="w")).steps == {3: 3.0, 4: 3.0}
    parquet.write_table(pyarrow.table({"batch": [3, None]}), tmp_path / "w.parquet")
    with pytest.raises(UsageError, match="the batch is no batch"):
        read(tmp_path / "w.parquet", Columns())
    with pytest.raises(UsageError, match="is no Parquet"):
        log(b"PAR1 and more", "w.parquet")


def test_parquet_without_a_reader(log: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError) as refused:
        log(b"PAR1", "w.parquet")
    assert "no reader of it is installed (pyarrow)" in str(refused.value)
    assert "pip install 'cudagraph-doctor[parquet]'" in str(refused.value)


@pytest.mark.parametrize("name", ["w.csv", "w.jsonl"])
def test_pieces_add_up(log: Write, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "PIECE", 3)
    sizes = [1, 2, 2, 3, 3, 3, 4, 4, 4, 4]
    csv = "batch\n" + "".join(f"{n}\n" for n in sizes)
    text = csv if name == "w.csv" else "".join(json.dumps({"batch": n}) + "\n" for n in sizes)
    assert log(text, name).steps == {1: 1.0, 2: 2.0, 3: 3.0, 4: 4.0}


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        ("-2", "-2"),
        ("2.5", "2.5"),
        ("x", "'x'"),
        ("nan", "nothing"),
        ("inf", "inf"),
        ("1e300", "1e+300"),
        ("1000001", "1000001"),
    ],
)
@pytest.mark.parametrize("piece", [2, 1000])
def test_no_batch(log: Write, value: str, seen: str, piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "PIECE", piece)
    with pytest.raises(UsageError, match=r"row 5: the batch is no batch\.") as refused:
        log(f"batch\n1\n2\n3\n{value}\n4\n")
    assert f"seen: {seen}" in str(refused.value)


@pytest.mark.parametrize("value", ["null", '"x"', "true", "[3]", '{"a": 1}', "-1", "2.5", "1" * 400])
def test_no_batch_in_jsonl(log: Write, value: str) -> None:
    with pytest.raises(UsageError, match="row 2: the batch is no batch"):
        log(f'{{"batch": 1}}\n{{"batch": {value}}}\n', "w.jsonl")


@pytest.mark.parametrize("value", ["-1", "x", "nan"])
def test_no_weight(log: Write, value: str) -> None:
    with pytest.raises(UsageError, match="row 3: the weight is no weight"):
        log(f"batch,weight\n1,1\n2,{value}\n")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("", "w.csv"),
        ("batch\n", "w.csv"),
        ("\n\n", "w.jsonl"),
        ("batch\n0\n0\n", "w.csv"),
        ("batch,weight\n3,0\n", "w.csv"),
    ],
)
def test_empty(log: Write, text: str, name: str) -> None:
    with pytest.raises(UsageError, match="holds no batch"):
        log(text, name)


def test_columns_that_are_not_there(log: Write) -> None:
    with pytest.raises(UsageError, match="no column that is known to hold batches"):
        log("a,b\n1,2\n")
    with pytest.raises(UsageError, match=r'has no column "batc".* Did you mean "batch"'):
        log("batch\n1\n", size="batc")
    with pytest.raises(UsageError, match='has no column "w"'):
        log("batch\n1\n", weight="w")


def test_lines_that_are_no_records(log: Write) -> None:
    with pytest.raises(UsageError, match="line 2: this is no JSON"):
        log('{"batch": 3}\n{"batch": 3\n', "w.jsonl")
    with pytest.raises(UsageError, match='record 2: it has no "batch"'):
        log('{"batch": 3}\n{"bs": 3}\n', "w.jsonl")
    with pytest.raises(UsageError, match='record 2: it has no "batch"'):
        log('{"batch": 3}\n4\n', "w.jsonl")
    with pytest.raises(UsageError, match="is no CSV"):
        log('batch\n1\n"2\n3\n')


def test_no_text_and_no_file(log: Write, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no text file"):
        log(b"\xff\xfe\x00\xd8\n\x00")
    with pytest.raises(UsageError, match="cannot be read"):
        read(tmp_path / "none.csv", Columns())
    with pytest.raises(UsageError, match="cannot be read"):
        read(tmp_path, Columns())


def test_two_columns_of_one_name(log: Write) -> None:
    with pytest.raises(UsageError, match="is no CSV"):
        log("batch,batch\n1,2\n")
