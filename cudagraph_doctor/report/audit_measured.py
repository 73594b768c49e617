"""The terminal's view of what `audit --target` measured: a row a key, the pools, and the switching."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cudagraph_doctor.byte_sizes import in_bytes

_COLUMNS = ("key", "nodes", "capture ms", "instantiate ms", "replay ms", "padded ms", "eager ms", "graph", "pool alone")


def tables(measured: dict[str, Any] | None) -> Iterator[RenderableType]:
    """Everything; nothing if nothing was measured."""
    if measured is None:
        return
    count = "1 key" if len(measured["keys"]) == 1 else f"{len(measured['keys'])} keys"
    timed = any(key["replay"] for key in measured["keys"])
    how = "Measured" if timed else "Played, and not timed"
    yield _said(f"{how}: {count} of a target ({measured['form']}), compared with eager.")
    if timed:
        yield _keys(measured["keys"])
    pools = measured["pools"]
    if pools:
        several = "1 pool" if pools["number"] == 1 else f"{pools['number']} pools"
        first = pools["smallest_first"]
        other = f"; one pool, the smallest key first: {in_bytes(first)}" if first is not None else ""
        yield _said(f"Pools as captured: {in_bytes(pools['as_captured'])} in {several}{other}.")
    switching = measured["switching"]
    yield _said(f"Switching: {switching['visits']} replays in {switching['orders']} random orders of the keys.")


def _keys(rows: list[dict[str, Any]]) -> RenderableType:
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False, pad_edge=False)
    cells = [_row(row) for row in rows]
    shown = [at for at in range(len(_COLUMNS)) if any(row[at] for row in cells)]
    for at in shown:
        table.add_column(_COLUMNS[at], justify="right")
    for row in cells:
        table.add_row(*(row[at] for at in shown))
    return Padding(table, (0, 0, 0, 4))


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    def median(timing: dict[str, float] | None) -> str:
        return "" if timing is None else f"{timing['median_ms']:.4g}"

    padded = f"{median(row['padded'])} ({row['padded_rows']})" if row["padded"] else ""
    numbers = ("" if row[name] is None else f"{row[name]:.4g}" for name in ("capture_ms", "instantiate_ms"))
    sizes = ("" if row[name] is None else in_bytes(row[name]) for name in ("graph_bytes", "pool_bytes"))
    nodes = "" if row["nodes"] is None else str(row["nodes"])
    return (str(row["size"]), nodes, *numbers, median(row["replay"]), padded, median(row["eager"]), *sizes)


def _said(text: str) -> Padding:
    return Padding(Text(text), (0, 0, 0, 2))
