"""A scrubbed trace reads as before, and tells nothing of the machine."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cudagraph_doctor.misses.judged import Demands, judge_all
from cudagraph_doctor.recording.scrub import scrub
from cudagraph_doctor.traces.collect import collect
from cudagraph_doctor.traces.sniff import sniff
from cudagraph_doctor.traces.steps import Trace

if TYPE_CHECKING:
    from tests.traces.made_up import MadeUp


def a_loop(make: Callable[[], MadeUp]) -> MadeUp:
    loop = make()
    graph = loop.capture(40, 4)
    for i in range(3):
        loop.decode(i, 3, 4, graph)
    loop.eager(3, 9)
    return loop


def steps(trace: Trace) -> list[object]:
    return [(s.verdict, s.bucket, s.record.submit_ns) for s in judge_all([trace], Demands()).steps]


@pytest.mark.parametrize("mode", ["node", "graph"])
@pytest.mark.parametrize("schema", ["3.0.0", "3.20.3", "3.25.0"])
def test_export(mode: str, schema: str, made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    path = a_loop(made_up).nsys(tmp_path / "t.sqlite", schema, mode, environment="SECRET", diagnostics=("/home/me",))
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE PROCESSES (globalPid INTEGER, pid INTEGER, name TEXT)")
        database.execute("INSERT INTO PROCESSES VALUES (1, 1, '/opt/private/server')")
        database.execute("CREATE TABLE ProcessStreams (text TEXT)")
        database.execute("INSERT INTO ProcessStreams VALUES ('SECRET')")
        database.execute("INSERT INTO StringIds VALUES (9999, '/home/me/unused')")
        database.execute(
            "INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid)"
            " VALUES (1, 2, 59, 'of another process', 77)"
        )
    before, whole = steps(collect(path, sniff(path))), path.read_bytes()
    assert all(word in whole for word in (b"SECRET", b"/home/me", b"private", b"another process"))
    scrub(path)
    scrubbed = path.read_bytes()
    assert not any(word in scrubbed for word in (b"SECRET", b"/home/me", b"private", b"another process"))
    assert steps(collect(path, sniff(path))) == before
    assert len(scrubbed) < len(whole)
    assert [file.name for file in tmp_path.iterdir()] == ["t.sqlite"]


def test_profile(made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    path = a_loop(made_up).kineto(tmp_path / "t.json.gz")
    before, size = steps(collect(path, sniff(path))), path.stat().st_size
    scrub(path)
    assert steps(collect(path, sniff(path))) == before
    assert path.stat().st_size < size
    import gzip

    text = gzip.decompress(path.read_bytes()).decode()
    assert "cpu_op" not in text and "process_name" not in text and "traceName" not in text


def test_a_failure_leaves_the_trace_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    path.write_bytes(b"nonsense")
    with pytest.raises(sqlite3.DatabaseError):
        scrub(path)
    assert path.read_bytes() == b"nonsense"
    assert [file.name for file in tmp_path.iterdir()] == ["t.sqlite"]
