"""What an audit is asked: whose keys, which workload, what costs, which gates. Plain values from the command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cudagraph_doctor.audit.costs import Costs, Modelled
from cudagraph_doctor.audit.keys import Unit
from cudagraph_doctor.audit.simulate import Arrivals


@dataclass(frozen=True, slots=True)
class Source:
    """One configuration: a rank's, where there are several."""

    where: str
    """The file's name, or the option."""
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Demands:
    """Gates, and what a better list is to keep to. None: not asked."""

    min_hit_rate: float | None = None
    """0 to 1."""
    max_padding: float | None = None
    """0 to 1: padding rows as a share of the replayed keys' rows."""
    max_graph_memory: int | None = None
    """Bytes."""
    graphs: int | None = None
    """Keys of the better list; None: as many as there are."""
    graph_memory: int | None = None
    """Bytes that the better list may take."""


@dataclass(frozen=True, slots=True)
class Job:
    """One audit."""

    sources: tuple[Source, ...]
    engine: str = ""
    rule: str = ""
    max_batch: int | None = None
    workload: Path | None = None
    column: str = ""
    weight: str = ""
    unit: Unit | None = None
    traces: tuple[Path, ...] = ()
    step_pattern: str = ""
    arrivals: Arrivals | None = None
    costs: Costs = field(default_factory=Modelled)
    demands: Demands = field(default_factory=Demands)
    kv_bytes_per_token: int | None = None
    """For costs that do not tell it."""
