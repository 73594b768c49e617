"""The one graph model that checks see, whichever backend captured. Plain data, no torch.

`cuda.py` fills it from a real `cudaGraph_t`, `emulated.py` from recorded operators.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from cudagraph_doctor.findings import Location


class NodeKind(StrEnum):
    """Kinds of graph nodes, after CUDA's CUgraphNodeType."""

    KERNEL = "kernel"
    MEMCPY = "memcpy"
    MEMSET = "memset"
    HOST = "host"
    CHILD = "child"
    EMPTY = "empty"
    EVENT_WAIT = "event wait"
    EVENT_RECORD = "event record"
    SEMAPHORE_SIGNAL = "semaphore signal"
    SEMAPHORE_WAIT = "semaphore wait"
    MEM_ALLOC = "mem alloc"
    MEM_FREE = "mem free"
    BATCH_MEM_OP = "batch mem op"
    CONDITIONAL = "conditional"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Region:
    """What an address means."""

    kind: str
    """"input" | "state" | "weight" | "root" | "pool" | "freed" | "pinned" | "pageable" | "unnamed"."""
    name: str
    """"slot_mapping", "layers.0.qkv.weight", ...; for "pool" the segment ordinal; "" if unnamed."""
    offset: int
    """Bytes from the start of the named tensor's storage (or allocator block, or segment)."""

    @property
    def is_nobodys(self) -> bool:
        """Whether it is device memory that no name leads to."""
        return self.kind in ("freed", "unnamed")

    def __str__(self) -> str:
        name = f' "{self.name}"' if self.name else ""
        return f"{self.kind}{name}" + (f" + {self.offset}" if self.offset else "")


@dataclass(frozen=True, slots=True)
class Pointer:
    """A word of a parameter that is an address, and what the address meant when the graph was read."""

    offset: int
    """Byte offset in `Param.data`."""
    address: int
    region: Region


@dataclass(frozen=True, slots=True)
class Param:
    """One by-value parameter of a node: raw bytes; the pointers found in it."""

    index: int
    name: str
    """Argument name where known ("positions", "dst"), else ""."""
    offset: int
    """Byte offset in the kernel's parameter buffer."""
    data: bytes
    pointers: tuple[Pointer, ...] = ()
    """Each aligned 8-byte word of `data` that is an address of known memory, in order."""
    value: Any = None
    """The Python value, where the backend knows it (emulated scalars); None otherwise."""

    is_descriptor: bool = False
    """It is as large as a tensor map (CUtensorMap), and lies as one has to: its fields are no numbers."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Who launched a node."""

    location: Location | None = None
    """The user's source line."""
    module: str = ""
    """nn.Module path, "layers.0.attn"."""
    operator: str = ""
    """Dispatched operator, "aten.index_copy_.default"."""


@dataclass(frozen=True, slots=True)
class GraphNode:
    """One node of a captured graph."""

    index: int
    """Position in the order of `cuGraphGetNodes` (creation order); children follow their parent, numbered on."""
    kind: NodeKind
    name: str
    """Kernel name (mangled as CUDA gives it; see `graph.names.readable`), operator name when emulated."""
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    shared_bytes: int | None = None
    params: tuple[Param, ...] = ()
    origin: Origin | None = None
    parent: int | None = None
    """Index of the child-graph node this node lies in; None at the top."""
    unreadable: str = ""
    """Why its parameters could not be read; empty if they were."""


@dataclass(frozen=True, slots=True)
class CapturedGraph:
    """A captured graph, read."""

    key: str
    nodes: tuple[GraphNode, ...]
    edges: tuple[tuple[int, int], ...] = ()
    pool: str = ""
    """Identifies the private memory pool, as text."""
    not_read: dict[str, int] = field(default_factory=dict)
    """Reason -> number of nodes that could not be read."""
