"""Everything a run needs, frozen, JSON both ways. Made by `cli`, read by `examine`, the worker and the checks."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far a float output may be from eager before it counts as large: |a - b| <= atol + rtol * max|b|."""

    rtol: float
    atol: float


@dataclass(frozen=True, slots=True)
class Settings:
    """One run of one check on one target."""

    check: str
    spec: str = "reference"
    """What to look at: `module:attr`, `file.py:attr`, `reference`, `reference:loop`, `reference:engine`."""
    target_args: dict[str, str] = field(default_factory=dict)
    fault: str = ""
    """Planted fault of the bundled model, or "" for the sound one."""
    twin: bool = False
    """With `fault`: its clean twin instead."""
    backend: str = "auto"
    """"auto" | "cuda" | "emulated"."""
    steps: int = 8
    """Number of decode steps compared for each key."""
    buckets: tuple[int, ...] = ()
    """Buckets (keys) to look at; empty: the smallest, a middle and the largest."""
    batch_sizes: tuple[int, ...] = ()
    """Batch sizes to play, in this order; empty: chosen to find stale tails."""
    exhaustive: bool = False
    """All buckets."""
    quick: bool = False
    """Two buckets where none are named: the smallest and the largest."""
    seed: int = 0
    tolerances: dict[str, Tolerance] = field(default_factory=dict)
    """By output path, "" for all outputs; without one by dtype (`proof.compare`)."""
    values: bool = True
    """Whether findings may show values (token ids...)."""
    history: str = ""
    """File that `inputs` writes what it saw into, as JSON; "" for none."""
    recaptures: int = 0
    """How often `inputs` captures steps again, at least; it captures each step that it compares three times anyway."""
    poison: bool = False
    """Whether `inputs` surveys a target with poisoned inputs, which finds nothing by itself (`examine_inputs`)."""
    memory_margin: int = 1 << 30
    """Bytes of device memory that `audit` leaves free: it captures no further key below it."""
    app_dir: str = "."
    timeout_s: float = 1800.0
    in_process: bool = False
    debug: bool = False

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; `from_json` is the inverse."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Settings:
        """Inverse of `to_json`."""
        fields = dict(data)
        fields["buckets"] = tuple(fields.get("buckets", ()))
        fields["batch_sizes"] = tuple(fields.get("batch_sizes", ()))
        fields["tolerances"] = {k: Tolerance(**v) for k, v in fields.get("tolerances", {}).items()}
        return cls(**fields)
