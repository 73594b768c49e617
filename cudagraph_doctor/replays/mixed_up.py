"""Does a buffer hold what another input should hold? Judges readings; plain Python, no torch.

Asked of all replays, since at one of them two inputs may be alike by chance: each time the live rows of the buffer have
to be the other input's true ones, and these have to change between steps of as many rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cudagraph_doctor.graph.values import numbers
from cudagraph_doctor.replays.model import Content, History, Reading, Region


def held_instead(history: History, region: Region) -> str:
    """The name of the other input whose true values an input's buffer holds; "" if there is none.

    Of several inputs with these values it is the one whose buffer holds this one's, if there is such a one.
    """
    others = [other for other in history.regions if _holds(history, region, other)]
    others.sort(key=lambda other: not _holds(history, other, region))
    return others[0].name if others else ""


def _holds(history: History, region: Region, other: Region) -> bool:
    if region.name == other.name or {region.kind, other.kind} != {"input"} or region.shape[1:] != other.shape[1:]:
        return False
    here, there = _by_replay(history.readings, region), _by_replay(history.readings, other)
    both = [(here[at].held, there[at].expected, history.replays[at].rows) for at in here.keys() & there.keys()]
    held = [_live(content, rows) for content, _, rows in both]
    if len(both) < len(here) or None in held:
        return False
    moves = len({(rows, live) for (_, _, rows), live in zip(both, held, strict=True)}) > len(
        {rows for *_, rows in both}
    )
    return moves and held == [expected and _live(expected, rows) for _, expected, rows in both]


def _by_replay(readings: Sequence[Reading], region: Region) -> dict[int, Reading]:
    return {reading.replay: reading for reading in readings if reading.region == region.id}


def _live(content: Content, rows: int) -> tuple[Any, ...] | str | None:
    """The numbers in the live rows; of what was not kept whole, a hash of all rows. None if they read as no numbers."""
    if content.data is None:
        return content.hash
    found = numbers(content.data, content.dtype)
    if found is None or not content.shape:
        return found
    return found[: rows * (len(found) // content.shape[0])] if content.shape[0] else ()
