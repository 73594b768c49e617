"""What was measured: plain data. `costs` makes the table of it that the static audit reads."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import Any

from cudagraph_doctor.audit.costs import CostTable, KeyCost


@dataclass(frozen=True, slots=True)
class Timing:
    """Repeated runs of one step."""

    median_ms: float
    low_ms: float
    """The first quartile."""
    high_ms: float
    """The third."""
    runs: int

    @classmethod
    def of(cls, milliseconds: Sequence[float]) -> Timing:
        """From at least two runs."""
        low, _, high = quantiles(milliseconds, n=4, method="inclusive")
        return cls(round(median(milliseconds), 6), round(low, 6), round(high, 6), len(milliseconds))


@dataclass(frozen=True, slots=True)
class Measured:
    """One key."""

    size: int
    rows: int
    """Live rows of `replay` and `eager`: `size`, or as many as the engine was seen to have there."""
    padded_rows: int
    """The smallest batch that it serves."""
    graphs: int = 1
    nodes: int | None = None
    """Of all of its graphs."""
    capture_ms: float | None = None
    instantiate_ms: float | None = None
    replay: Timing | None = None
    padded: Timing | None = None
    eager: Timing | None = None
    graph_bytes: int | None = None
    """Device memory beside the allocator's, taken by the capture and the first replay."""
    pool_bytes: int | None = None
    """Its pool, captured alone."""


@dataclass(frozen=True, slots=True)
class Pools:
    """Device memory of all keys' pools, in bytes. None: not measured."""

    as_captured: int
    """As they were when everything was measured: largest first on one pool, or as the runner captures."""
    number: int
    """Pools then."""
    smallest_first: int | None = None
    """One pool, the smallest key first."""


@dataclass(frozen=True, slots=True)
class Dependence:
    """A batch whose result depends on which key ran before it."""

    key: int
    rows: int
    last_key: int
    last_rows: int
    differs: str
    """What differs, in words."""
    times: int
    """How often the pair was run, and differed; before another key ran, two runs were equal."""


@dataclass(frozen=True, slots=True)
class Switching:
    """Keys in random orders."""

    orders: int = 0
    visits: int = 0
    """Replays compared."""
    dependences: tuple[Dependence, ...] = ()
    unstable: tuple[int, ...] = ()
    """Keys whose replays differ from each other anyway: not judged."""
    with_state: bool = True
    """Whether the state was compared besides the outputs."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """All of it."""

    form: str
    """"loop", "loop with its own runner", "engine"."""
    keys: tuple[Measured, ...]
    """Ascending."""
    most: int
    """The largest batch of the target."""
    pools: Pools | None = None
    left_out: tuple[int, ...] = ()
    """Keys that were not captured: memory would have run short."""
    switching: Switching = field(default_factory=Switching)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return dataclasses.asdict(self)


def costs(measurement: Measurement, source: str) -> CostTable | None:
    """The table that the static audit reads; None if there are no times. `source` says what was measured."""
    timed = [key for key in measurement.keys if key.replay is not None]
    return CostTable(tuple(_cost(key) for key in timed), source) if timed else None


def _cost(key: Measured) -> KeyCost:
    assert key.replay is not None
    return KeyCost(
        size=key.size,
        replay_ms=key.replay.median_ms,
        eager_ms=key.eager.median_ms if key.eager else None,
        padded_rows=key.padded_rows if key.padded else None,
        padded_ms=key.padded.median_ms if key.padded else None,
        capture_ms=key.capture_ms,
        instantiate_ms=key.instantiate_ms,
        nodes=key.nodes,
        graph_bytes=key.graph_bytes,
        pool_bytes=key.pool_bytes,
    )
