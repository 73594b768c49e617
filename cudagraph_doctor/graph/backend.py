"""What a backend has to offer, and the log of graphs that were captured under its hooks.

The proof package and the checks are written against `torch.cuda`'s own API (`CUDAGraph`, `graph`, `Stream`, ...): on a
GPU it is the real one with a watching subclass of `CUDAGraph`, emulated it is a stand-in. What `torch.cuda` does not
offer (reading and patching nodes, live memory) comes from a `Backend`: `cuda.CudaBackend`, `emulated.EmulatedBackend`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import torch

from cudagraph_doctor.findings import Location
from cudagraph_doctor.graph.callsite import callsite
from cudagraph_doctor.graph.illegal import CaptureStatus, Place
from cudagraph_doctor.graph.model import CapturedGraph
from cudagraph_doctor.graph.regions import Regions

if TYPE_CHECKING:
    from cudagraph_doctor.graph.origins import Trace


@dataclass(frozen=True, slots=True)
class Block:
    """A live allocation of device memory (an active allocator block; emulated: a storage)."""

    address: int
    bytes: int
    """Size as requested by the owner where the allocator tells it, else the block's size."""
    pool: str = ""
    """"" for the default pool, else the identity of a private pool (a graph's)."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One change to a parameter of an instantiated graph's node."""

    node: int
    """`GraphNode.index`."""
    param: int
    """`Param.index`."""
    data: bytes = b""
    """New bytes of the whole parameter (same length)."""
    value: Any = None
    """New Python value, where `Param.value` was set (emulated)."""


@dataclass(eq=False, slots=True)
class LiveGraph:
    """A graph captured while the hooks were in. Holds the `CUDAGraph` weakly: the user decides how long it lives."""

    ordinal: int
    """0, 1, ... in order of capture."""
    graph: weakref.ref[Any]
    captured_at: Location | None = None
    """The user's line that opened the capture."""
    replayed_at: Location | None = None
    """The user's line that replayed it first."""
    pool: str = ""
    replays: int = 0
    nodes: int | None = None
    """Number of nodes at the end of the capture, where known."""
    capture_s: float | None = None
    """Seconds from the begin of the capture to its end, where that means something."""
    instantiate_s: float | None = None
    """Seconds that the instantiation took, where that is known."""
    notes: dict[str, Any] = field(default_factory=dict)
    """Free room for the backend."""


class ListenerError(RuntimeError):
    """A listener of ours failed inside a user's capture or replay: our bug, not the replay's."""


class GraphLog:
    """Captures and replays as they happen. Listeners are called on the capturing or replaying thread."""

    def __init__(self) -> None:
        self.graphs: list[LiveGraph] = []
        self.replays = 0
        self._captured: list[Callable[[LiveGraph], None]] = []
        self._replaying: list[Callable[[LiveGraph], None]] = []

    def captured(self, live: LiveGraph) -> None:
        """Called by the backend at the end of a successful capture."""
        self.graphs.append(live)
        self._tell(self._captured, live)

    def replaying(self, live: LiveGraph) -> None:
        """Called by the backend right before a replay is launched."""
        if live.replays == 0:
            live.replayed_at = callsite()
        live.replays += 1
        self.replays += 1
        self._tell(self._replaying, live)

    @staticmethod
    def _tell(listeners: list[Callable[[LiveGraph], None]], live: LiveGraph) -> None:
        for listener in tuple(listeners):
            try:
                listener(live)
            except Exception as error:
                raise ListenerError(f"a listener failed: {type(error).__name__}: {error}") from error

    @contextmanager
    def listening(
        self,
        captured: Callable[[LiveGraph], None] | None = None,
        replaying: Callable[[LiveGraph], None] | None = None,
    ) -> Iterator[None]:
        """Call `captured` / `replaying` for what happens inside the block."""
        if captured:
            self._captured.append(captured)
        if replaying:
            self._replaying.append(replaying)
        try:
            yield
        finally:
            if captured:
                self._captured.remove(captured)
            if replaying:
                self._replaying.remove(replaying)


class Backend(Protocol):
    """One way to capture, read, patch and replay graphs."""

    name: str
    """"cuda" or "emulated"."""
    device: str
    """What a target is called with: "cuda" or "cpu:0"."""

    @property
    def log(self) -> GraphLog:
        """Captures and replays seen so far."""

    def installed(self) -> AbstractContextManager[None]:
        """The hooks (or stand-ins) are in; entered before the target's module is imported."""

    def not_checked(self) -> tuple[str, ...]:
        """What this backend cannot see, in sentences."""

    def synchronize(self) -> None:
        """Wait for the device. Raises the device's error, if it has one."""

    def read(self, live: LiveGraph, regions: Regions, key: str = "") -> CapturedGraph:
        """Read the nodes; addresses are named by `regions`. Nodes that cannot be read are kept with the reason.

        Raises Inconclusive if the graph is gone or cannot be read at all.
        """

    def patched(self, live: LiveGraph, edits: Sequence[Edit]) -> AbstractContextManager[None]:
        """Inside the block the instantiated graph runs with these parameters; the old ones are put back after.

        Raises Inconclusive if a node cannot be patched.
        """

    def trace_origins(
        self, capture: Callable[[], object], modules: Mapping[str, torch.nn.Module] | None = None
    ) -> list[Trace]:
        """Run `capture` watched, and tell for each graph that it captures who launched its nodes.

        Empty where nodes carry their origin themselves (emulated).
        """

    def blocks(self) -> list[Block]:
        """All live allocations of device memory but the doctor's own, by address."""

    def bytes_of(self, block: Block) -> torch.Tensor:
        """A uint8 tensor over the block's memory: a view, not a copy. Shape (block.bytes,)."""

    def scratch(self, pool: str) -> list[Block]:
        """Memory of a private pool that nobody owns between replays: where graphs keep what they compute meanwhile."""

    def own_memory(self) -> AbstractContextManager[None]:
        """What is allocated inside the block is the doctor's: `blocks()` leaves it out."""

    def free_bytes(self) -> int:
        """Device memory that can still be allocated."""

    def delay(self, milliseconds: float) -> None:
        """Keep the current stream busy for about this long (emulated: nothing)."""

    def is_host(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor lies in host memory."""

    def place_of(self, tensor: torch.Tensor) -> Place:
        """In which memory the tensor lies."""

    def capture_status(self, stream: int) -> CaptureStatus:
        """Whether the stream with this handle captures."""

    def answering(self, answer: Callable[[], bool | None]) -> AbstractContextManager[None]:
        """Whoever asks inside the block whether the current stream captures gets `answer()`, the truth if it is None.

        Also who has imported `is_current_stream_capturing` by name.
        """
