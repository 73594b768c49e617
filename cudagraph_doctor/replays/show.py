"""The history of one tensor, for `inputs --show NAME`: at each replay what was read, and beside it the fresh value."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from cudagraph_doctor.errors import UsageError
from cudagraph_doctor.findings import Location
from cudagraph_doctor.graph.names import readable
from cudagraph_doctor.graph.values import numbers, shown
from cudagraph_doctor.replays.content import bounds
from cudagraph_doctor.replays.model import Content, History, Reader, Reading, Region
from cudagraph_doctor.replays.paths import called
from cudagraph_doctor.spec import near

_ELEMENTS = 16
"""Numbers shown of a content."""
_READERS = 6


def parts(history: History, name: str) -> list[RenderableType]:
    """What is known of the tensors of that name, to be laid out below each other.

    Raises:
        UsageError: no graph reads a tensor of that name.
    """
    found = called(history.regions, name)
    if not found:
        known = sorted({path for region in history.regions for path in (region.name, *region.aliases) if path})
        raise UsageError(
            f'No graph of this run reads a tensor "{name}".{near(name, known)}',
            seen=f"what they read: {', '.join(known) or 'nothing that has a name'}",
            fix="Give --show one of these, or the end of one.",
        )
    return [part for region in found for part in _region(history, region)]


def _region(history: History, region: Region) -> Iterator[RenderableType]:
    shape = f"{region.dtype} {tuple(region.shape)}"
    title = Text(region.name or "unnamed", "bold")
    title.append(f"  {region.kind}, {shape}, {region.bytes} bytes at {region.address:#x} when captured", "default")
    yield title
    if region.aliases:
        yield Text(f"  also: {', '.join(region.aliases)}")
    if region.allocated:
        yield Text(f"  allocated at {_at(region.allocated)}")
    for reader in region.readers[:_READERS]:
        yield Text(f"  read by {_reader(history, reader)}")
    if len(region.readers) > _READERS:
        yield Text(f"  and by {len(region.readers) - _READERS} more parameters")
    readings = [reading for reading in history.readings if reading.region == region.id]
    yield _table(history, readings) if readings else Text("  No replay of this run was watched reading it.")
    yield from _told(history, region)
    yield Text("")


def _reader(history: History, reader: Reader) -> str:
    graph = next((graph for graph in history.graphs if graph.ordinal == reader.graph), None)
    node = next((node for node in graph.nodes if node.index == reader.node), None) if graph else None
    name = readable(node.name) if node else f"node {reader.node}"
    place = node.origin.location if node and node.origin else None
    offset = f" + {reader.offset} bytes" if reader.offset else ""
    key = f" in graph {graph.key}" if graph else ""
    return f"{name}, parameter {reader.param}{offset}{key}" + (f", {_at(place)}" if place else "")


def _at(place: Location) -> str:
    return f"{place.file}:{place.line}"


def _table(history: History, readings: list[Reading]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("Step", justify="right")
    table.add_column("Rows", justify="right")
    for title in ("Key", "Read", "Fresh", "", "Last written"):
        table.add_column(title, overflow="fold")
    for reading in readings:
        replay = history.replays[reading.replay]
        written = reading.written
        since = "" if written is None or written.step is None else f" in step {written.step}"
        table.add_row(
            str(replay.step),
            str(replay.rows),
            replay.key,
            _content(reading.held, reading.expected),
            _content(reading.expected, reading.held) if reading.expected else Text("not known", "dim"),
            _verdict(reading),
            f"{_at(written.location)}{since}" if written else "",
        )
    return table


def _verdict(reading: Reading) -> str:
    words = []
    if reading.changed is not None:
        words.append("changed" if reading.changed else "as before")
    if reading.expected is not None:
        words.append("not fresh" if reading.expected.hash != reading.held.hash else "fresh")
    if not reading.alive:
        words.append("freed")
    if reading.live is not None:
        words.append(f"the name leads to {reading.live_address or 0:#x}, which holds {_content(reading.live, None)}")
    return ", ".join(words)


def _content(content: Content, other: Content | None) -> Text:
    """Its numbers, those that differ from the other's marked; of what was not kept, range and hash."""
    found = None if content.data is None else numbers(content.data, content.dtype)
    if found is None:
        low, high = bounds(content)
        told = "" if low is None else f"{low} to {high}, "
        return Text(f"{told}hash {content.hash[:12]}")
    beside = None if other is None or other.data is None else numbers(other.data, other.dtype)
    text = Text()
    for place, number in enumerate(found[:_ELEMENTS]):
        differs = beside is not None and (place >= len(beside) or beside[place] != number)
        text.append(str(shown(number, content.dtype)), "red" if differs else "")
        text.append(" ")
    if len(found) > _ELEMENTS:
        text.append(f"... {len(found)} in all, hash {content.hash[:12]}")
    text.rstrip()
    return text


def _told(history: History, region: Region) -> Iterator[Text]:
    for position, flag in enumerate(history.flags):
        if flag.region != region.id:
            continue
        at = "" if flag.replay is None else f" from step {history.replays[flag.replay].step} on"
        where = f" ({flag.where})" if flag.where else ""
        trials = [trial for trial in history.trials if position in trial.flags]
        if any(trial.healed for trial in trials):
            effect = "putting it right heals the replay"
        else:
            effect = "putting it right does not heal the replay" if trials else "no repair was tried"
        yield Text(f"  {flag.code}{at}{where}: {effect}")
