"""Does a buffer hold what another input should hold? Judges readings; plain Python, no torch.

Asked of all replays, since at one of them two inputs may be alike by chance: each time the live rows of the buffer have
to be the other input's true ones, and these have to change between steps of as many rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cudagraph_doctor.graph.values import numbers
from cudagraph_doctor.replays.model import Content, History, Reading, Region


def held_instead(history: History, region: Region) -> str:
    """The name of the other input whose true values an input's buffer holds; "" if there is none.

    Of several inputs with these values it is the one whose buffer holds this one's, if there is such a one. Of two that
    are swapped one has to change, which shows it of both.
    """
    one_way = ""
    for other in history.regions:
        here, there = _Held.of(history, region, other), _Held.of(history, other, region)
        if here.alike and there.alike and (here.moves or there.moves):
            return other.name
        if here.alike and here.moves:
            one_way = one_way or other.name
    return one_way


@dataclass(frozen=True, slots=True)
class _Held:
    """What an input's buffer held, against the true values of another."""

    alike: bool = False
    """Whether they are the same in all live rows, at every replay."""
    moves: bool = False
    """Whether it is another thing at two replays of as many rows."""

    @classmethod
    def of(cls, history: History, region: Region, other: Region) -> _Held:
        if region.name == other.name or {region.kind, other.kind} != {"input"} or region.shape[1:] != other.shape[1:]:
            return cls()
        here, there = _by_replay(history.readings, region), _by_replay(history.readings, other)
        both = [(here[at].held, there[at].expected, history.replays[at].rows) for at in here.keys() & there.keys()]
        held = [_live(content, rows) for content, _, rows in both]
        if len(both) < len(here) or None in held:
            return cls()
        rows_alone = {rows for *_, rows in both}
        with_contents = {(rows, live) for (*_, rows), live in zip(both, held, strict=True)}
        right = [expected and _live(expected, rows) for _, expected, rows in both]
        return cls(held == right, len(with_contents) > len(rows_alone))


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
