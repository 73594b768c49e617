"""The picture that people look at: inputs by steps, what changed, what was frozen, whose tail is stale."""

from __future__ import annotations

import string
from collections.abc import Sequence
from enum import Enum

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from cudagraph_doctor.replays.model import History, Reading, Region

_NAME_WIDTH = 28
_KEY_WIDTH = 4
"""Characters of a key that a column has room for."""
_NARROWEST = 24
"""Columns below which nothing can be shown."""


class Cell(Enum):
    """What a replay read of an input: a letter, what it means, a style."""

    CHANGED = ("+", "changed, as it should", "green")
    CONSTANT = ("=", "constant, as it should be", "dim")
    FROZEN = ("F", "frozen: as before, and not the fresh value", "bold red")
    TAIL = ("T", "stale tail: only rows beyond the batch differ from fresh ones", "yellow")
    WRONG = ("X", "changed, but not to the fresh value", "bold red")
    ELSEWHERE = ("E", "the name leads to other memory by now", "bold red")
    FREED = ("D", "the memory was freed", "bold red")
    UNKNOWN = ("?", "no fresh value to compare with", "dim")
    UNREAD = (" ", "not read at this step", "")

    def __init__(self, letter: str, meaning: str, style: str) -> None:
        self.letter = letter
        self.meaning = meaning
        self.style = style


def cell(history: History, region: Region, reading: Reading | None) -> Cell:
    """What to show of a region at a replay."""
    if reading is None:
        return Cell.UNREAD
    if not reading.alive:
        return Cell.FREED
    if reading.live is not None and reading.live.hash != reading.held.hash:
        return Cell.ELSEWHERE
    if reading.expected is None:
        return Cell.UNKNOWN
    if reading.expected.hash == reading.held.hash:
        return Cell.CHANGED if reading.changed else Cell.CONSTANT
    if _only_in_padding(region, reading, history.replays[reading.replay].rows):
        return Cell.TAIL
    return Cell.WRONG if reading.changed else Cell.FROZEN


def _only_in_padding(region: Region, reading: Reading, rows: int) -> bool:
    """Whether all that differs lies in rows of an input that no request has."""
    if region.kind != "input" or not region.shape or not region.shape[0] or not reading.unequal:
        return False
    row_bytes = region.bytes // region.shape[0]
    return rows < region.shape[0] and all(span.start >= rows * row_bytes for span in reading.unequal)


def parts(history: History, width: int) -> list[RenderableType]:
    """The matrix, to be laid out below each other: in as many stretches of steps as the width asks for, and a legend.

    Shown are regions with a name that changed or should have; the number of others is told.
    """
    cells = {region.id: _row(history, region) for region in history.regions}
    moved = [r for r in history.regions if r.name and set(cells[r.id]) - {Cell.CONSTANT, Cell.UNKNOWN, Cell.UNREAD}]
    if not moved:
        return [Text("No input with a name changed at any replay.")]
    name_width = max(min(_NAME_WIDTH, width // 2), 8)
    graphs = _graphs(history)
    titles = [(str(replay.step), str(replay.rows), graphs[replay.key]) for replay in history.replays]
    cell_width = max(len(text) for title in titles for text in title) + 1
    at_once = max((max(width, _NARROWEST) - name_width - 1) // cell_width, 1)
    made: list[RenderableType] = []
    for start in range(0, len(titles), at_once):
        table = Table.grid(padding=(0, 1, 0, 0))
        table.add_column(width=name_width, no_wrap=True)
        for _ in titles[start : start + at_once]:
            table.add_column(width=cell_width - 1, justify="right", no_wrap=True)
        for which, word in enumerate(("step", "rows", "graph")):
            table.add_row(Text(word, "bold"), *(title[which] for title in titles[start : start + at_once]))
        for region in moved:
            shown = cells[region.id][start : start + at_once]
            table.add_row(_shortened(region.name, name_width), *(Text(one.letter, one.style) for one in shown))
        made += [table, Text("")]
    told = [Text(f"{short}  graph {key}", "dim") for key, short in graphs.items() if short != key]
    return [*made, *told, *_legend({one for region in moved for one in cells[region.id]}), *_rest(history, moved)]


def _graphs(history: History) -> dict[str, str]:
    """Key -> what stands for it in a column: itself, or a letter for all if one of them is too long."""
    keys = list(dict.fromkeys(replay.key for replay in history.replays))
    if all(len(key) <= _KEY_WIDTH for key in keys):
        return {key: key for key in keys}
    return {key: string.ascii_lowercase[n % 26] + (str(n // 26) if n > 25 else "") for n, key in enumerate(keys)}


def _row(history: History, region: Region) -> list[Cell]:
    by_replay = {reading.replay: reading for reading in history.readings if reading.region == region.id}
    return [cell(history, region, by_replay.get(number)) for number in range(len(history.replays))]


def _shortened(name: str, width: int) -> str:
    """Without its middle where it is too long: both ends tell apart."""
    if len(name) <= width:
        return name
    end = (width - 2) * 2 // 3
    return f"{name[: width - 2 - end]}..{name[-end:]}"


def _legend(used: set[Cell]) -> list[Text]:
    return [Text(f"{one.letter}  {one.meaning}", one.style) for one in Cell if one in used and one is not Cell.UNREAD]


def _rest(history: History, moved: Sequence[Region]) -> list[Text]:
    left = len(history.regions) - len(moved)
    return [Text(f"{left} more {'region' if left == 1 else 'regions'}: constant, or without a name.")] if left else []
