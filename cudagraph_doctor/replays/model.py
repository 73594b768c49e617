"""What the replays of a run read against what they should have read. Plain data, no torch, JSON both ways (`plain`).

It is passed one way: the collector makes a `History` (torch), judges read it and add flags, the trials of repair are
appended, wording makes findings of flags and trials. A history that was stored is judged again as it is.

Numbers that point somewhere are positions: `Reading.replay` in `History.replays`, `Reader.graph` is `Graph.ordinal`,
`Reading.region` is `Region.id`, `Trial.flags` are positions in `History.flags`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from cudagraph_doctor.findings import Location
from cudagraph_doctor.graph.model import GraphNode

SMALL_BYTES = 4096
"""Contents up to this size are kept whole."""

Number = int | float


@dataclass(frozen=True, slots=True)
class Content:
    """What a stretch of memory held at one moment."""

    size: int
    """Bytes."""
    hash: str
    """Hexadecimal, of the bytes in order; equal hashes are taken as equal contents."""
    dtype: str = "uint8"
    """As torch names it, without "torch."."""
    shape: tuple[int, ...] = ()
    low: Number | None = None
    """Smallest value that is not NaN; None if there is none."""
    high: Number | None = None
    data: bytes | None = None
    """The elements in order, little-endian, if there are at most `SMALL_BYTES` of them."""


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes [start, stop) of a region."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Reader:
    """A parameter of a node that points into a region."""

    graph: int
    node: int
    param: int
    """`Param.index`."""
    offset: int
    """Bytes from the start of the region to where it points."""
    reads: bool | None = None
    """Whether the node reads there; None if that is not known."""
    writes: bool | None = None


@dataclass(frozen=True, slots=True)
class Region:
    """Memory that a graph may read: a named tensor's, or an allocator block."""

    id: int
    kind: str
    """As `graph.model.Region.kind`."""
    name: str
    """Attribute or input path; "" if nobody names it."""
    address: int
    """When the graph was captured."""
    bytes: int
    dtype: str = "uint8"
    shape: tuple[int, ...] = ()
    aliases: tuple[str, ...] = ()
    """Further paths that led to it at the capture."""
    allocated: Location | None = None
    readers: tuple[Reader, ...] = ()
    """Of all graphs of the run, in order."""


@dataclass(frozen=True, slots=True)
class Graph:
    """A graph that was replayed, as it was captured."""

    ordinal: int
    """0, 1, ... in order of capture."""
    key: str
    captured_at: Location | None
    nodes: tuple[GraphNode, ...]
    pool: str = ""
    not_read: dict[str, int] = field(default_factory=dict)
    """Reason -> number of nodes that could not be read."""


@dataclass(frozen=True, slots=True)
class Measured:
    """How often two arms of a step differed, and how often one of them differed from itself."""

    differs: int = 0
    of: int = 0
    control: int = 0
    control_of: int = 0
    difference: str = ""
    """In words, of the first pair that differed."""

    @property
    def shown(self) -> bool:
        """Each time different, the control never."""
        return 0 < self.differs == self.of and self.control == 0 < self.control_of


@dataclass(frozen=True, slots=True)
class Replay:
    """One step of the plan that was run through a graph captured earlier."""

    index: int
    """Position in the plan."""
    step: int
    """What the target was asked for."""
    rows: int
    key: str
    graphs: tuple[int, ...]
    """Ordinals of the graphs that it launched, in order."""
    against_eager: Measured = Measured()
    against_fresh: Measured | None = None
    """None if there was no graph captured now."""
    harm_step: int | None = None
    """Where only state differs: the later step of the plan at which an output follows."""

    @property
    def harmed(self) -> bool:
        """Whether an output of this step, or of a later one through the state, is wrong."""
        return (
            self.against_eager.shown
            or self.harm_step is not None
            or bool(self.against_fresh and self.against_fresh.shown)
        )


@dataclass(frozen=True, slots=True)
class Write:
    """Who wrote a region last before a replay."""

    location: Location
    step: int | None
    """None: before the first step of the plan."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One region right before one launch."""

    replay: int
    region: int
    held: Content
    expected: Content | None = None
    """What the graph captured now reads at its place; None if there is no counterpart."""
    live: Content | None = None
    """What the region's name leads to by now, if that is other memory."""
    live_address: int | None = None
    unequal: tuple[Span, ...] = ()
    """Where `held` is not as `expected`."""
    changed: bool | None = None
    """Since the replay before; None at the first one."""
    written: Write | None = None
    alive: bool = True
    """Whether its allocation is still the one that was captured."""
    absent: bool = False
    """Whether the step's true values leave this input out."""


@dataclass(frozen=True, slots=True)
class Dump:
    """All nodes of one graph of one capture, captured only to be compared.

    Each capture starts from reset() and the same host state; its addresses are normalised as `Pointer.region`: own pool
    by ordinal of the segment, named memory by name.
    """

    ordinal: int
    """0, 1, ... in order of capture, over all groups."""
    step: int
    """Dumps of one `group` are captures with nothing changed."""
    rows: int
    key: str
    nodes: tuple[GraphNode, ...]
    graph: int = 0
    """The how manieth graph of the step."""
    moved_on: int = 0
    """How many times the host's own state, its counters and random generators, was moved on before it: the step was run
    that often without being counted, and so many numbers were drawn."""
    host: dict[str, Any] = field(default_factory=dict)
    """Host values by path right before the capture, plain numbers and texts: those that differ between dumps."""
    host_after: dict[str, Any] = field(default_factory=dict)
    """The same right after it, where the capture moved them."""
    host_memory: tuple[tuple[int, int], ...] = ()
    """Where the process had memory of the host then: (first address, one past the last); empty if it was not noted."""

    @property
    def group(self) -> tuple[int, int, str, int]:
        """What dumps of one group have in common."""
        return (self.step, self.rows, self.key, self.moved_on)


@dataclass(frozen=True, slots=True)
class Place:
    """A part of a by-value parameter, or of a launch."""

    graph: int
    node: int
    param: int | None = None
    """`Param.index`; None for the launch itself."""
    offset: int = 0
    """Bytes from the start of the parameter."""
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Flag:
    """Something that a judge saw. It becomes a finding only where harm is shown."""

    code: str
    """CGD3xx."""
    replay: int | None
    """The first one at which it was seen; None if it is about captures alone."""
    region: int | None = None
    place: Place | None = None
    name: str = ""
    """The culprit: the region's name, "kernel, parameter 4"."""
    kind: str = ""
    """As `Culprit.kind`."""
    where: str = ""
    """Which rows, columns, bytes."""
    held: Any = None
    """Plain JSON: what the replay read there (shortened)."""
    expected: Any = None
    evidence: dict[str, Any] = field(default_factory=dict)
    location: Location | None = None
    """The line to be mended, as far as it is known."""
    related: tuple[Location, ...] = ()


@dataclass(frozen=True, slots=True)
class Trial:
    """A repair: what some flags accuse was put right for one replay."""

    replay: int
    flags: tuple[int, ...]
    """All that were mended together."""
    healed: bool
    bytes: int
    """Written by it."""
    left: str = ""
    """What still differed, in words."""


@dataclass(frozen=True, slots=True)
class Run:
    """What was run."""

    target: str
    """The SPEC."""
    form: str
    """"loop", "loop with its own runner", "engine"."""
    backend: str
    torch: str = ""
    """Version."""
    device: str = ""
    """Name of the GPU, "" if emulated."""
    seed: int = 0
    arguments: dict[str, str] = field(default_factory=dict)
    """The target's."""
    fault: str = ""
    """Planted fault of the bundled model, with " (twin)" for its sound twin."""


@dataclass(frozen=True, slots=True)
class History:
    """All that was seen."""

    run: Run
    graphs: tuple[Graph, ...] = ()
    regions: tuple[Region, ...] = ()
    replays: tuple[Replay, ...] = ()
    readings: tuple[Reading, ...] = ()
    dumps: tuple[Dump, ...] = ()
    flags: tuple[Flag, ...] = ()
    trials: tuple[Trial, ...] = ()
    not_checked: tuple[str, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)
    """"graphs" (replayed), "regions", "unnamed", "opaque parameters", "unreadable nodes", "bytes fingerprinted"..."""
