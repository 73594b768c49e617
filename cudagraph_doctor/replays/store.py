"""The run store of `inputs --db FILE`: a SQLite database of histories, to be asked, and to be judged again.

A file holds any number of runs; each is a row of `runs`, and every other row says to which run it belongs. What is in
which table is told by `schema.py`. Neither torch nor a GPU is needed for anything here.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import cudagraph_doctor
from cudagraph_doctor.errors import UsageError
from cudagraph_doctor.findings import Finding, to_json
from cudagraph_doctor.replays import schema
from cudagraph_doctor.replays.model import (
    Content,
    Dump,
    Flag,
    Graph,
    History,
    Reader,
    Reading,
    Region,
    Replay,
    Run,
    Trial,
)
from cudagraph_doctor.replays.plain import from_plain, to_plain

_FIX = "Give a file that `cudagraph-doctor inputs SPEC --db FILE` wrote."


def check_writable(path: Path) -> None:
    """Refuse now what could not be added to after a long run.

    Raises:
        UsageError: the file is there and no run store of this version, or its folder is not.
    """
    if path.is_dir():
        raise UsageError(f'"{path}" is a folder.', fix="Name a file for the run store.")
    if not path.parent.is_dir():
        raise UsageError(f'The folder "{path.parent}" of the run store does not exist.', fix="Make it first.")
    if path.exists() and path.stat().st_size:
        with _opened(path):
            pass


def save(path: Path, history: History, findings: Iterable[Finding] = (), *, values: bool = True) -> int:
    """Add a run to the store, which is made if it is not there.

    A run becomes visible when all of it is written: what an earlier one left unfinished is removed.

    Args:
        path: the store.
        history: what was seen.
        findings: what was made of it, as it may be shown.
        values: whether contents, and values in flags, may be stored: token ids are among them.

    Returns:
        The number of the run.

    Raises:
        UsageError: the file cannot be written, or is no run store of this version.
    """
    from sqlite_utils import Database  # only here and in `_opened`: it imports pandas, which takes as long as all else

    check_writable(path)
    history = history if values else without_contents(history)
    try:
        with closing(sqlite3.connect(path)) as connection:
            # A run is there once its last row is; that the machine loses power meanwhile is not feared.
            connection.execute("pragma synchronous = off")
            database = Database(connection)
            if not database.table_names():
                connection.executescript(f"begin;\n{schema.script()}commit;")
            [(last,)] = connection.execute("select coalesce(max(run), 0) from runs")
            with connection:
                for table in schema.COLUMNS:
                    connection.execute(f"delete from {table} where run > ?", [last])
            run = int(last) + 1
            for table, rows in _rows(run, history, list(findings)):
                database.table(table).insert_all(rows)
            return run
    except sqlite3.Error as error:
        raise UsageError(
            f'"{path}" cannot be written.', seen=str(error), fix="Give --db a file on a disk with room."
        ) from None


def _rows(run: int, history: History, findings: list[Finding]) -> Iterator[tuple[str, Iterable[dict[str, Any]]]]:
    """(table, rows): the run's own row comes last."""
    contents: dict[Content, int] = {}

    def rows(table: schema.Table, placed: Iterable[tuple[tuple[int, ...], Any]]) -> tuple[str, list[dict[str, Any]]]:
        return table.name, [table.row(run, place, value, contents) for place, value in placed]

    def numbered(values: Iterable[Any]) -> Iterator[tuple[tuple[int], Any]]:
        return (((number,), value) for number, value in enumerate(values))

    nodes = [((g.ordinal, number), node) for g in history.graphs for number, node in enumerate(g.nodes)]
    yield rows(schema.GRAPHS, (((), graph) for graph in history.graphs))
    yield rows(schema.NODES, nodes)
    yield rows(schema.PARAMS, (((*at, n), param) for at, node in nodes for n, param in enumerate(node.params)))
    yield rows(schema.REGIONS, (((), region) for region in history.regions))
    yield rows(schema.READERS, (((r.id, n), reader) for r in history.regions for n, reader in enumerate(r.readers)))
    yield rows(schema.REPLAYS, numbered(history.replays))
    yield rows(schema.READINGS, numbered(history.readings))
    yield rows(schema.CONTENTS, (((number,), content) for content, number in contents.items()))
    yield "dumps", (_dump_row(run, number, dump) for number, dump in enumerate(history.dumps))
    yield rows(schema.FLAGS, numbered(history.flags))
    yield rows(schema.TRIALS, numbered(history.trials))
    yield "findings", [_finding_row(run, number, finding) for number, finding in enumerate(findings)]
    of_the_run = {
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "tool": f"cudagraph-doctor {cudagraph_doctor.__version__}",
        "not_checked": json.dumps(history.not_checked),
        "counts": json.dumps(history.counts),
    }
    yield "runs", [schema.RUNS.row(run, (), history.run, contents) | of_the_run]


def _dump_row(run: int, number: int, dump: Dump) -> dict[str, Any]:
    whole = zlib.compress(json.dumps(to_plain(dump)).encode())
    own = {"step": dump.step, "rows": dump.rows, "key": dump.key, "graph": dump.graph, "nodes": len(dump.nodes)}
    return {"run": run, "dump": number, **own, "whole": whole}


def _finding_row(run: int, number: int, finding: Finding) -> dict[str, Any]:
    place = finding.location
    return {
        "run": run,
        "finding": number,
        "code": finding.code,
        "severity": finding.severity.value,
        "proof": finding.proof.value,
        "message": finding.message,
        "culprit": finding.culprit.name if finding.culprit else None,
        "file": place.file if place else None,
        "line": place.line if place else None,
        "step": finding.step,
        "key": finding.key,
        "fingerprint": finding.fingerprint,
        "whole": json.dumps(to_json(finding)),
    }


def load(path: Path, run: int | None = None) -> History:
    """A stored run, the last one by default.

    Raises:
        UsageError: there is no such file or no such run, or the file is no run store of this version, or damaged.
    """
    with _opened(path) as database:
        known = [row["run"] for row in database.query("select run from runs order by run")]
        if not known:
            raise UsageError(f'"{path}" holds no run.', fix=_FIX)
        chosen = known[-1] if run is None else run
        if chosen not in known:
            raise UsageError(f'"{path}" has no run {chosen}.', seen=f"its runs: {_listed(known)}", fix="Name one.")
        try:
            return _history(database, chosen)
        except (KeyError, TypeError, ValueError, IndexError, zlib.error) as error:
            raise UsageError(
                f'Run {chosen} in "{path}" cannot be read.',
                seen=f"{type(error).__name__}: {error}",
                fix="The file was changed after it was written: store the run anew.",
            ) from None


def _history(database: Any, run: int) -> History:
    def stored(table: str) -> list[dict[str, Any]]:
        return list(database.query(f"select * from {table} where run = ? order by rowid", [run]))

    contents: list[Content] = []

    def fields(table: schema.Table) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        return [(row, table.fields(row, contents)) for row in stored(table.name)]

    contents += [Content(**found) for _, found in fields(schema.CONTENTS)]
    params: dict[tuple[int, int], list[Any]] = {}
    for row, found in fields(schema.PARAMS):
        params.setdefault((row["graph"], row["node"]), []).append(schema.PARAMS.kind(**found))
    nodes: dict[int, list[Any]] = {}
    for row, found in fields(schema.NODES):
        own = tuple(params.get((row["graph"], row["node"]), ()))
        nodes.setdefault(row["graph"], []).append(schema.NODES.kind(**found, params=own))
    readers: dict[int, list[Reader]] = {}
    for row, found in fields(schema.READERS):
        readers.setdefault(row["region"], []).append(Reader(**found))
    [(about, the_run)] = fields(schema.RUNS)
    return History(
        run=Run(**the_run),
        graphs=tuple(Graph(**f, nodes=tuple(nodes.get(f["ordinal"], ()))) for _, f in fields(schema.GRAPHS)),
        regions=tuple(Region(**f, readers=tuple(readers.get(f["id"], ()))) for _, f in fields(schema.REGIONS)),
        replays=tuple(Replay(**found) for _, found in fields(schema.REPLAYS)),
        readings=tuple(Reading(**found) for _, found in fields(schema.READINGS)),
        dumps=tuple(from_plain(Dump, json.loads(zlib.decompress(row["whole"]))) for row in stored("dumps")),
        flags=tuple(Flag(**found) for _, found in fields(schema.FLAGS)),
        trials=tuple(Trial(**found) for _, found in fields(schema.TRIALS)),
        not_checked=tuple(json.loads(about["not_checked"])),
        counts=json.loads(about["counts"]),
    )


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """The store, to be read. Raises UsageError if it is none, also where that shows only while reading."""
    from sqlite_utils import Database

    if not path.is_file():
        raise UsageError(f'There is no file "{path}".', fix=_FIX)
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            [(application,)] = connection.execute("pragma application_id")
            if application != schema.APPLICATION_ID:
                raise UsageError(f'"{path}" is a SQLite database, but no run store.', fix=_FIX)
            [(version,)] = connection.execute("pragma user_version")
            if version != schema.SCHEMA_VERSION:
                raise UsageError(
                    f'"{path}" is a run store of schema version {version}; this version reads {schema.SCHEMA_VERSION}.',
                    fix="Upgrade cudagraph-doctor." if version > schema.SCHEMA_VERSION else "Store the run anew.",
                )
            damage = [row[0] for row in connection.execute("pragma quick_check(1)")]
            if damage != ["ok"]:
                raise sqlite3.DatabaseError(damage[0])
            yield Database(connection)
    except sqlite3.DatabaseError as error:
        if "not a database" in str(error):
            raise UsageError(f'"{path}" is no SQLite database.', fix=_FIX) from None
        raise UsageError(
            f'"{path}" cannot be read: the file is truncated, damaged or in use.', seen=str(error), fix=_FIX
        ) from None


def _listed(runs: list[int]) -> str:
    return ", ".join(map(str, runs)) if len(runs) < 10 else f"{runs[0]} to {runs[-1]}"


def without_contents(history: History) -> History:
    """The history without what memory held: hashes stay, so that it can still be told what differs and what changes."""

    def hidden(content: Content | None) -> Content | None:
        return None if content is None else replace(content, data=None, low=None, high=None)

    def of(reading: Reading) -> Reading:
        held = replace(reading.held, data=None, low=None, high=None)
        return replace(reading, held=held, expected=hidden(reading.expected), live=hidden(reading.live))

    def bare(flag: Flag) -> Flag:
        told = {name: value for name, value in flag.evidence.items() if not name.endswith("values")}
        return replace(flag, held=None, expected=None, evidence=told)

    return replace(
        history,
        readings=tuple(map(of, history.readings)),
        flags=tuple(map(bare, history.flags)),
    )
