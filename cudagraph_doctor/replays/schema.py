"""The run store's tables and views. Columns are the fields of `model.py`'s dataclasses, by their names.

A field that is a number, a text or bytes is a column of that kind; any other is JSON text, as `plain.py` makes it. A
field whose contents have a table of their own is left out, or is the number of a row there. Next on the path:
`store.py`, which writes and reads these.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import types
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Union, get_args, get_origin, get_type_hints

from cudagraph_doctor.graph.model import GraphNode, Param
from cudagraph_doctor.replays.model import Content, Flag, Graph, Reader, Reading, Region, Replay, Run, Trial
from cudagraph_doctor.replays.plain import from_plain, to_plain

APPLICATION_ID = 0x43474452
"""In the file's header ("CGDR"): this is a run store."""
SCHEMA_VERSION = 2
"""In the file's header. One more whenever a table changes."""

_DIRECT: dict[Any, str] = {int: "INTEGER", bool: "INTEGER", str: "TEXT", bytes: "BLOB", float: "REAL"}
_LARGEST = 1 << 63


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the store: its rows are objects of one kind, with the run they belong to and their place in it."""

    name: str
    kind: Any
    """The dataclass."""
    place: tuple[str, ...]
    """Columns before the object's own, besides "run": what it is a part of, and its position there."""
    elsewhere: tuple[str, ...] = ()
    """Fields that have a table of their own."""
    contents: tuple[str, ...] = ()
    """Fields that are a `Content`: the column is a position in the table `contents`."""

    @property
    def columns(self) -> dict[str, str]:
        """Name -> declared type, "" for numbers of both kinds."""
        own = {name: "INTEGER" if name in self.contents else _declared(hint) for name, hint in self._hints().items()}
        return {"run": "INTEGER", **dict.fromkeys(self.place, "INTEGER"), **own}

    def row(self, run: int, place: tuple[int, ...], value: Any, contents: dict[Content, int]) -> dict[str, Any]:
        """The object as a row. A content that is not in `contents` is added there."""
        cells: dict[str, Any] = {"run": run, **dict(zip(self.place, place, strict=True))}
        for name, hint in self._hints().items():
            held = getattr(value, name)
            if name in self.contents:
                cells[name] = None if held is None else contents.setdefault(held, len(contents))
            else:
                cells[name] = _cell(held, hint)
        return cells

    def fields(self, row: dict[str, Any], contents: list[Content]) -> dict[str, Any]:
        """Inverse of `row`: the object's fields. Raises KeyError, TypeError, ValueError or IndexError if it is none."""
        found: dict[str, Any] = {}
        for name, hint in self._hints().items():
            cell = row[name]
            if name in self.contents:
                found[name] = None if cell is None else contents[cell]
            else:
                found[name] = _value(cell, hint)
        return found

    def _hints(self) -> dict[str, Any]:
        return {name: hint for name, hint in _hints(self.kind).items() if name not in self.elsewhere}


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _plain_kinds(hint: Any) -> tuple[Any, ...]:
    """The kinds, None left out, if cells hold values of them as they are; else nothing."""
    kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    kinds = tuple(kind for kind in kinds if kind is not type(None))
    plain = all(kind in _DIRECT or (isinstance(kind, type) and issubclass(kind, StrEnum)) for kind in kinds)
    return kinds if plain else ()


def _declared(hint: Any) -> str:
    kinds = _plain_kinds(hint)
    if len(kinds) > 1:
        return ""
    return _DIRECT.get(kinds[0], "TEXT") if kinds else "TEXT"


def _cell(value: Any, hint: Any) -> Any:
    if not _plain_kinds(hint):
        return None if value is None and hint is not Any else json.dumps(to_plain(value))
    if isinstance(value, int) and not -_LARGEST <= value < _LARGEST:
        return float(value)  # SQLite has no integers of more than 64 bits
    return value.value if isinstance(value, StrEnum) else value


def _value(cell: Any, hint: Any) -> Any:
    kinds = _plain_kinds(hint)
    if not kinds:
        return None if cell is None else from_plain(hint, json.loads(cell))
    if cell is None or len(kinds) > 1:
        return cell
    if not isinstance(cell, (int, float, str, bytes)):
        raise TypeError(f"a cell holds {type(cell).__name__}")
    return kinds[0](cell)


RUNS = Table("runs", Run, ())
CONTENTS = Table("contents", Content, ("content",))
GRAPHS = Table("graphs", Graph, (), elsewhere=("nodes",))
NODES = Table("nodes", GraphNode, ("graph", "node"), elsewhere=("params",))
PARAMS = Table("params", Param, ("graph", "node", "param"))
REGIONS = Table("regions", Region, (), elsewhere=("readers",))
READERS = Table("readers", Reader, ("region", "reader"))
REPLAYS = Table("replays", Replay, ("replay",))
READINGS = Table("readings", Reading, ("reading",), contents=("held", "expected", "live"))
FLAGS = Table("flags", Flag, ("flag",))
TRIALS = Table("trials", Trial, ("trial",))

TABLES = (RUNS, CONTENTS, GRAPHS, NODES, PARAMS, REGIONS, READERS, REPLAYS, READINGS, FLAGS, TRIALS)
"""Those whose columns are made from dataclasses."""

DUMPS = {
    "run": "INTEGER",
    "dump": "INTEGER",
    "step": "INTEGER",
    "rows": "INTEGER",
    "key": "TEXT",
    "graph": "INTEGER",
    "nodes": "INTEGER",
    "whole": "BLOB",
}
"""Captures that are there only to be compared: how many nodes, and all of it as JSON, compressed (zlib)."""
FINDINGS = {
    "run": "INTEGER",
    "finding": "INTEGER",
    "code": "TEXT",
    "severity": "TEXT",
    "proof": "TEXT",
    "message": "TEXT",
    "culprit": "TEXT",
    "file": "TEXT",
    "line": "INTEGER",
    "step": "INTEGER",
    "key": "TEXT",
    "fingerprint": "TEXT",
    "whole": "TEXT",
}
"""What was made of it: as in the JSON report, the finding as a whole in `whole`."""
OF_A_RUN = {"made_at": "TEXT", "tool": "TEXT", "not_checked": "TEXT", "counts": "TEXT"}
"""Columns of `runs` besides those of `Run`: when and by what it was stored, and what the history says of all of it."""

COLUMNS: dict[str, dict[str, str]] = {
    **{table.name: table.columns for table in TABLES},
    "runs": RUNS.columns | OF_A_RUN,
    "dumps": DUMPS,
    "findings": FINDINGS,
}
"""Table -> column -> declared type."""

VIEWS = {
    "observations": """
        select g.run, p.replay, p.step, p.rows, p.key, m.id as region, m.kind, m.name,
               held.hash, held.low as min, held.high as max, g.changed,
               case when g.expected is null then null else held.hash = fresh.hash end as equals_fresh,
               fresh.hash as fresh_hash, fresh.low as fresh_min, fresh.high as fresh_max, g.alive,
               json_extract(g.written, '$.location.file') as written_file,
               json_extract(g.written, '$.location.line') as written_line
        from readings g
        join replays p on p.run = g.run and p.replay = g.replay
        join regions m on m.run = g.run and m.id = g.region
        join contents held on held.run = g.run and held.content = g.held
        left join contents fresh on fresh.run = g.run and fresh.content = g.expected""",
    "frozen": """
        select * from observations where equals_fresh = 0 and changed = 0""",
    "inputs": """
        select run, name, kind, count(*) as replays, sum(changed) as changed, sum(equals_fresh = 0) as not_fresh,
               min(case when equals_fresh = 0 then step end) as first_step_not_fresh
        from observations group by run, region""",
    "who_reads": """
        select d.run, m.name as region, d.graph, d.node, n.name as kernel, a.name as argument, d.param, d.offset,
               d.reads, d.writes, json_extract(n.origin, '$.location.file') as file,
               json_extract(n.origin, '$.location.line') as line
        from readers d
        join regions m on m.run = d.run and m.id = d.region
        join nodes n on n.run = d.run and n.graph = d.graph and n."index" = d.node
        left join params a on a.run = d.run and a.graph = d.graph and a.node = n.node and a."index" = d.param""",
    "flagged": """
        select f.run, f.flag, f.code, f.name, f."where", p.step, p.rows, p.key, f.held, f.expected, n.name as kernel,
               json_extract(f.place, '$.param') as param, json_extract(f.place, '$.offset') as offset,
               exists (select 1 from trials t, json_each(t.flags) e
                       where t.run = f.run and t.healed and e.value = f.flag) as healed
        from flags f
        left join replays p on p.run = f.run and p.replay = f.replay
        left join nodes n on n.run = f.run and n.graph = json_extract(f.place, '$.graph')
                         and n."index" = json_extract(f.place, '$.node')""",
}
"""The common questions: what each replay read; what stayed as it was and should not have; inputs in numbers; who reads
a region; what judges saw, and whether a repair of it healed."""


def script() -> str:
    """The SQL that makes an empty store."""
    statements = [f"pragma application_id = {APPLICATION_ID}", f"pragma user_version = {SCHEMA_VERSION}"]
    for table, columns in COLUMNS.items():
        told = ", ".join(f'"{name}" {kind}'.rstrip() for name, kind in columns.items())
        statements.append(f"create table {table} ({told})")
        statements.append(f"create index {table}_by_run on {table} (run)")
    statements += [f"create view {name} as{sql}" for name, sql in VIEWS.items()]
    return "".join(f"{statement};\n" for statement in statements)
