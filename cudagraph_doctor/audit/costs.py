"""What a step costs: a table of measured keys, or a model of two numbers where there is none.

`CostTable` is what a measurement writes and `--costs` reads, the same data class in JSON; `Modelled` stands in for it.
Times are milliseconds of the GPU's or the host's time, whichever a step waits for; sizes are those of the key set.
"""

from __future__ import annotations

import dataclasses
import json
import math
from bisect import bisect_left
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from cudagraph_doctor.errors import UsageError

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Line:
    """The time of a replay by the rows that are live in it: `at_zero + a_row * rows`, in ms."""

    at_zero: float
    a_row: float = 0.0

    def at(self, rows: int) -> float:
        """Milliseconds with so many live rows."""
        return self.at_zero + self.a_row * rows


class Costs(Protocol):
    """What the audit asks."""

    @property
    def origin(self) -> str:
        """Where the numbers come from, in words."""

    @property
    def measured(self) -> bool:
        """Whether they were measured; else nothing that follows from them alone may fail a run."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Sizes that numbers are known for, ascending; empty: any size is as good."""

    def replay(self, key: int) -> Line:
        """The time of a replay of this key."""

    def eager_ms(self, size: int) -> float:
        """The time of the step without a graph."""

    def graph_bytes(self, key: int) -> int | None:
        """Device memory that the graph takes beside its pool; None if not known."""

    def pool_bytes(self, key: int) -> int | None:
        """The pool that it needs, captured alone; None if not known."""

    def capture_ms(self, key: int) -> float | None:
        """Time to capture and instantiate it; None if not known."""


@dataclass(frozen=True, slots=True)
class Modelled:
    """A step is as slow as its slower side: the GPU with `base_ms + row_ms * rows`, or a host that launches eagerly."""

    base_ms: float = 1.0
    row_ms: float = 0.01
    launch_ms: float = 4.0
    """What the host needs to launch an eager step."""
    measured: bool = False
    sizes: tuple[int, ...] = ()

    @property
    def origin(self) -> str:
        """The model in words."""
        return (
            f"modelled: a replay takes {self.base_ms:g} ms + {self.row_ms:g} ms a row of its key, an eager step at "
            f"least {self.launch_ms:g} ms"
        )

    def replay(self, key: int) -> Line:
        """Padding costs as much as live rows."""
        return Line(self.base_ms + self.row_ms * key)

    def eager_ms(self, size: int) -> float:
        """The slower of host and GPU."""
        return max(self.launch_ms, self.base_ms + self.row_ms * size)

    def graph_bytes(self, key: int) -> int | None:
        """Not modelled."""
        return None

    def pool_bytes(self, key: int) -> int | None:
        """Not modelled."""
        return None

    def capture_ms(self, key: int) -> float | None:
        """Not modelled."""
        return None


@dataclass(frozen=True, slots=True)
class KeyCost:
    """One key, measured."""

    size: int
    replay_ms: float
    """With all rows live."""
    eager_ms: float | None = None
    padded_rows: int | None = None
    """The live rows of `padded_ms`: the smallest batch that this key serves."""
    padded_ms: float | None = None
    """A replay with so few rows live."""
    capture_ms: float | None = None
    instantiate_ms: float | None = None
    nodes: int | None = None
    graph_bytes: int | None = None
    """What the graph adds to the device's memory beside its pool."""
    pool_bytes: int | None = None
    """What its pool takes if it is captured alone."""


@dataclass(frozen=True, slots=True)
class CostTable:
    """Measured keys, ascending. JSON both ways. Between two sizes numbers lie on a line."""

    keys: tuple[KeyCost, ...]
    source: str = ""
    """What was measured: target, device, date."""
    kv_bytes_per_token: int | None = None
    """Device memory of one token in the KV cache: what graph memory is weighed against."""
    schema_version: int = SCHEMA_VERSION

    @property
    def origin(self) -> str:
        """The source in words."""
        return f"measured: {self.source}" if self.source else "measured"

    @property
    def measured(self) -> bool:
        """They were."""
        return True

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes in the table."""
        return tuple(key.size for key in self.keys)

    def replay(self, key: int) -> Line:
        """Through the times with all and with few rows live, where both are known."""
        row = self._row(key)
        full = self._between(key, [k.replay_ms for k in self.keys])
        if row is None or row.padded_ms is None or row.padded_rows is None or row.padded_rows >= row.size:
            return Line(full)
        slope = max(0.0, (row.replay_ms - row.padded_ms) / (row.size - row.padded_rows))
        return Line(row.replay_ms - slope * row.size, slope)

    def eager_ms(self, size: int) -> float:
        """Between the measured sizes; as slow as a replay where no eager time was measured."""
        return self._between(size, [k.replay_ms if k.eager_ms is None else k.eager_ms for k in self.keys])

    def graph_bytes(self, key: int) -> int | None:
        """Between the measured sizes, rounded up."""
        return self._bytes(key, [k.graph_bytes for k in self.keys])

    def pool_bytes(self, key: int) -> int | None:
        """Between the measured sizes, rounded up."""
        return self._bytes(key, [k.pool_bytes for k in self.keys])

    def capture_ms(self, key: int) -> float | None:
        """Capture and instantiation, between the measured sizes."""
        known = [(k.capture_ms or 0.0) + (k.instantiate_ms or 0.0) for k in self.keys if k.capture_ms is not None]
        return self._between(key, known) if len(known) == len(self.keys) else None

    def _row(self, size: int) -> KeyCost | None:
        at = bisect_left(self.sizes, size)
        return self.keys[at] if at < len(self.keys) and self.keys[at].size == size else None

    def _bytes(self, size: int, known: list[int | None]) -> int | None:
        values = [float(value) for value in known if value is not None]
        return math.ceil(self._between(size, values)) if len(values) == len(known) else None

    def _between(self, size: int, values: list[float]) -> float:
        """On the line between the neighbours; beyond the ends on that of the last two, and never below zero."""
        sizes = self.sizes
        if len(sizes) == 1:
            return values[0]
        at = min(max(bisect_left(sizes, size), 1), len(sizes) - 1)
        (x, y), (a, b) = (sizes[at - 1], sizes[at]), (values[at - 1], values[at])
        return max(0.0, a + (b - a) * (size - x) / (y - x))

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; `from_json` is the inverse."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> CostTable:
        """Inverse of `to_json`. Raises KeyError, TypeError or ValueError on a malformed one."""
        keys = tuple(sorted((KeyCost(**row) for row in data["keys"]), key=lambda key: key.size))
        if not keys or len({key.size for key in keys}) < len(keys):
            raise ValueError("there must be keys, each size once")
        for key in keys:
            _check(key)
        table = cls(**{**data, "keys": keys})
        if table.schema_version != SCHEMA_VERSION:
            raise ValueError(f"schema_version is {table.schema_version}, this version reads {SCHEMA_VERSION}")
        return table


def _check(key: KeyCost) -> None:
    for field in dataclasses.fields(key):
        value = getattr(key, field.name)
        whole = field.name in ("size", "padded_rows", "nodes", "graph_bytes", "pool_bytes")
        if value is None and field.name not in ("size", "replay_ms"):
            continue
        if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
            raise TypeError(f"{field.name} of size {key.size} is {value!r}")
        if not math.isfinite(value) or value < (1 if field.name == "size" else 0):
            raise ValueError(f"{field.name} of size {key.size} is {value}")


def load(file: Path) -> CostTable:
    """Read a table. Raises UsageError if it is none."""
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(data, dict):
            raise TypeError("it is no object")
        return CostTable.from_json(data)
    except OSError as error:
        raise UsageError(f'The costs "{file}" cannot be read: {error.strerror}.', fix="Name another file.") from None
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise UsageError(
            f'"{file}" is no table of costs.',
            seen=str(error),
            fix='Write {"keys": [{"size": 8, "replay_ms": 1.2, "eager_ms": 4.0, "graph_bytes": 8388608}, ...]}.',
        ) from None
