"""What a reader hands over beside the tables it filled. Plain data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from cudagraph_doctor.traces.ranges import Range


@dataclass(frozen=True, slots=True)
class CaptureLabel:
    """A labelled range around a capture."""

    thread: int
    start: int
    end: int
    bucket: int
    kind: str


@dataclass(frozen=True, slots=True)
class GraphMade:
    """A graph came into being: created, cloned or instantiated."""

    thread: int
    time: int
    graph: str
    """Id as GPU activities name it."""
    nodes: int
    """Rows that tell of it; in exports with node events, its nodes."""


@dataclass(slots=True)
class Source:
    """A trace that was read into a workspace."""

    kind: str
    version: str
    graph_mode: str
    ranges: list[Range]
    capture_labels: list[CaptureLabel]
    made: list[GraphMade]
    lanes: dict[int, str]
    """Process -> its name."""
    unmatched: int
    near: list[str]
    missing: list[str]
    api_name: Callable[[int], str]
    """Name of a call, by `call.api`."""
    kernel_name: Callable[[str, int], str]
    """Name of a kernel, by `activity.origin` and `activity.first`."""
    ranks: dict[int, int] = field(default_factory=dict)
    """Process -> rank, where the trace says so."""
