"""Judges readings: which regions held something else than they should have, and how that came? Plain Python, no torch.

A flag accuses nobody yet: it is spoken of where a trial heals by it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from cudagraph_doctor.graph.values import numbers, shown
from cudagraph_doctor.proof.ranges import numbered
from cudagraph_doctor.replays.mixed_up import held_instead
from cudagraph_doctor.replays.model import Content, Flag, History, Number, Reading, Region, Replay

HOLDS = "holds_values_of"
"""Evidence: the input whose values were found in another one's buffer."""
_SHOWN = 24
"""Numbers shown of a region."""


def judge(history: History) -> list[Flag]:
    """One flag for each region that is not as it should be, at the first harmed replay that read it so."""
    found = []
    for region in history.regions:
        readings = [reading for reading in history.readings if reading.region == region.id]
        wrong = [reading for reading in readings if reading.unequal or _moved(reading)]
        # the first harmed one; without harm, the first
        wrong.sort(key=lambda reading: not history.replays[reading.replay].harmed)
        if wrong:
            instead = held_instead(history, region)
            found.append(_flag(region, wrong[0], history.replays, readings, instead))
        else:
            found += _filled_elsewhere(region, readings, history.replays)
    return found


def _moved(reading: Reading) -> bool:
    return reading.live is not None and reading.live.hash != reading.held.hash


def _flag(
    region: Region, reading: Reading, replays: Sequence[Replay], readings: Sequence[Reading], instead: str
) -> Flag:
    """What is said of a region.

    Args:
        region: it.
        reading: the one to tell of.
        replays: of the run.
        readings: all of the region.
        instead: the other input whose values it holds; "" if it holds none's.
    """
    replay = replays[reading.replay]
    right = reading.live if _moved(reading) else reading.expected
    wrong = sorted(_elements(region, reading))
    rows = sorted({_row(region, element) for element in wrong})
    padded = bool(region.shape) and region.kind == "input" and region.shape[0] > replay.rows
    where = _where(region, wrong)
    if _moved(reading):
        code, where = ("CGD308" if region.kind == "weight" else "CGD305"), ""
    elif reading.absent:
        code = "CGD316"
    elif padded and rows and rows[0] >= replay.rows:
        code, where = "CGD303", f"padding {numbered('row', rows)}"
    elif instead:
        code, where = "CGD318", ""
    else:
        in_part = any(_refreshed(region, readings)) or _columns_refreshed(region, readings, replays)
        code = "CGD302" if in_part else "CGD301"
    return Flag(
        code,
        reading.replay,
        region.id,
        name=region.name,
        kind=region.kind,
        where=where,
        held=short(reading.held),
        expected=None if right is None else short(right),
        evidence={**_history(readings), **({HOLDS: instead} if code == "CGD318" else {})},
    )


def _elements(region: Region, reading: Reading) -> Iterator[int]:
    size = reading.held.size // max(1, _count(region))
    for span in reading.unequal:
        yield from range(span.start // max(1, size), -(-span.stop // max(1, size)))


def _count(region: Region) -> int:
    count = 1
    for size in region.shape:
        count *= size
    return count


def _row(region: Region, element: int) -> int:
    return element // max(1, _count(region) // region.shape[0]) if region.shape and region.shape[0] else 0


def _where(region: Region, elements: Sequence[int]) -> str:
    """ "rows 0 to 6", of a matrix with its columns."""
    if not region.shape or not elements:
        return ""
    text = numbered("row", sorted({_row(region, element) for element in elements}))
    if len(region.shape) == 2 and region.shape[1] > 1:
        text += f", {numbered('column', sorted({element % region.shape[1] for element in elements}))}"
    return text


def _refreshed(region: Region, readings: Sequence[Reading]) -> Iterator[bool]:
    """For each replay, whether some element that had to change since the replay before did."""
    before: tuple[Any, ...] | None = None
    for reading in readings:
        now = _numbers(reading.held)
        wanted = None if reading.expected is None else _numbers(reading.expected)
        if now is not None and wanted is not None and before is not None and len(before) == len(wanted):
            yield any(w not in (b, None) and w == n for b, n, w in zip(before, now, wanted, strict=True))
        before = now


def _columns_refreshed(region: Region, readings: Sequence[Reading], replays: Sequence[Replay]) -> bool:
    """Whether staging writes there for a step that finds it wrong, and has some columns right in all live rows, always.

    Tells what is copied from what is not where the columns that are copied hold the same at each step.
    """
    if len(region.shape) != 2:
        return False
    columns = region.shape[1]
    live = [(r, [e for e in _elements(region, r) if e // columns < replays[r.replay].rows]) for r in readings]
    wrong = {element % columns for _, some in live for element in some}
    staged = any(some and r.written and r.written.step == replays[r.replay].step for r, some in live)
    return staged and len(wrong) < columns


def _filled_elsewhere(region: Region, readings: Sequence[Reading], replays: Sequence[Replay]) -> Iterator[Flag]:
    """Inputs of which only the front changes, while graphs read further behind."""
    first = min((reader.offset for reader in region.readers), default=0)
    contents = [reading.held.data for reading in readings]
    if region.kind != "input" or first == 0 or any(data is None for data in contents):
        return
    fronts, ends = ({data[part] for data in contents if data} for part in (slice(0, first), slice(first, None)))
    if len(fronts) > 1 == len(ends):
        size = max(1, region.bytes // max(1, region.shape[0] if region.shape else 1))
        harmed = next((r for r in readings if replays[r.replay].harmed), readings[0])
        where = f"row {first // size} and up are read, the rows before it are filled"
        yield Flag(
            "CGD304",
            harmed.replay,
            region.id,
            name=region.name,
            kind=region.kind,
            where=where,
            held=short(harmed.held),
            evidence=_history(readings),
        )


def changes(readings: Sequence[Reading]) -> dict[str, int]:
    """In numbers: how often a region was read, and how often it held something else than at the replay before."""
    return {"replays": len(readings), "changed_at": sum(reading.changed is True for reading in readings)}


def _history(readings: Sequence[Reading]) -> dict[str, Any]:
    """In numbers: at how many replays it changed, and was not as it should be."""
    written = next((reading.written for reading in reversed(readings) if reading.written), None)
    told: dict[str, Any] = {
        **changes(readings),
        "not_as_expected_at": sum(bool(reading.unequal) or _moved(reading) for reading in readings),
    }
    if written is not None:
        told["last_written"] = f"step {written.step}, {written.location.file}:{written.location.line}"
    return told


def _numbers(content: Content) -> tuple[Any, ...] | None:
    return None if content.data is None else numbers(content.data, content.dtype)


def short(content: Content) -> Any:
    """The first numbers, as plain JSON; of what was not kept whole, its range and hash."""
    some = _numbers(content)
    if some is None:
        low, high = bounds(content)
        return {"shape": list(content.shape), "min": low, "max": high, "hash": content.hash}
    told = [shown(number, content.dtype) for number in some[:_SHOWN]]
    return told if len(some) <= _SHOWN else [*told, "..."]


def bounds(content: Content) -> tuple[Number | None, Number | None]:
    """The smallest and the largest number, with as many digits as the dtype has; None if there are none."""
    low, high = (None if one is None else shown(one, content.dtype) for one in (content.low, content.high))
    return low, high
