"""The real thing: captures through torch, reads and patches through the CUDA driver.

`watch` sees captures and replays, `nodes` reads, `patching` changes, `memory` and `addresses` know what memory is what,
`origins` who launched what. This module only puts them together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch

from cudagraph_doctor import environment
from cudagraph_doctor.errors import Inconclusive
from cudagraph_doctor.graph import driver, memory, origins, watch
from cudagraph_doctor.graph.addresses import Addresses
from cudagraph_doctor.graph.attributes import replaced
from cudagraph_doctor.graph.backend import Block, Edit, GraphLog, LiveGraph
from cudagraph_doctor.graph.illegal import CaptureStatus, Place
from cudagraph_doctor.graph.model import CapturedGraph
from cudagraph_doctor.graph.nodes import Reader, kernel_names, place
from cudagraph_doctor.graph.patching import Patches
from cudagraph_doctor.graph.regions import Regions

_ASKED = "_cuda_isCurrentStreamCapturing"
"""What `torch.cuda.is_current_stream_capturing` calls."""


class CudaBackend:
    """Captures, reads, patches and replays on the current CUDA device. See `backend.Backend`.

    Raises Inconclusive if that is not possible here (`why_unusable`).
    """

    name = "cuda"
    device = "cuda"

    def __init__(self) -> None:
        if reason := self.why_unusable():
            raise Inconclusive(
                "the CUDA backend cannot be used here", seen=reason, fix="mend that, or use --backend emulated"
            )
        self.log = GraphLog()
        self._own = memory.OwnMemory()
        self._segments_seen: dict[int, int] = {}
        self._cycles_per_ms = 0.0
        self._watched = watch.watching(
            torch.cuda.CUDAGraph,
            self.log,
            captured=self._captured,
            new_pool=torch.cuda.graph_pool_handle,
            failed=memory.end_capture_into,
        )

    @staticmethod
    def why_unusable() -> str:
        """Why this process cannot use the backend, with the remedy; "" if it can."""
        return environment.cuda_obstacle()

    def installed(self) -> AbstractContextManager[None]:
        """`torch.cuda.CUDAGraph` is the watching one inside the block."""
        return watch.installed(self._watched)

    def not_checked(self) -> tuple[str, ...]:
        """What this backend cannot see."""
        patching = "whether other parameters heal a graph: this torch does not give out instantiated graphs"
        return (
            "graphs that a library captures without torch.cuda.CUDAGraph",
            "contents of memory that torch's allocator does not own (cudaMalloc in a library, other processes)",
            "addresses that a kernel reads from device memory (tables of pointers)",
            "other GPUs than the current one",
            *(() if _gives_executable() else (patching,)),
        )

    def synchronize(self) -> None:
        """Wait for the current device. Raises the device's error, if it has one."""
        torch.cuda.synchronize()

    def read(self, live: LiveGraph, regions: Regions, key: str = "") -> CapturedGraph:
        """Read the nodes of a captured graph; addresses are named by `regions` where it knows them.

        Raises Inconclusive if the graph is gone or cannot be listed.
        """
        graph = self._alive(live)
        addresses = Addresses(regions, memory.snapshot(), live.pool, self._segments_seen.items(), driver.allocation_at)
        try:
            placed, edges = place(_raw_graph(graph))
        except driver.DriverError as error:
            raise Inconclusive(
                f"graph {live.ordinal} cannot be read", seen=str(error), fix="update cuda-bindings or the driver"
            ) from error
        nodes = Reader(addresses, torch.cuda.get_device_capability()[0]).read(placed)
        not_read = Counter(node.unreadable for node in nodes if node.unreadable)
        return CapturedGraph(key, nodes, tuple(edges), live.pool, dict(not_read))

    @contextmanager
    def patched(self, live: LiveGraph, edits: Sequence[Edit]) -> Iterator[None]:
        """Inside the block the instantiated graph runs with these parameters; the old ones are put back after.

        Raises Inconclusive if the graph is gone or one of the nodes cannot be patched.
        """
        if not _gives_executable():
            raise Inconclusive(
                f"torch {torch.__version__} does not give out instantiated graphs, so no parameter can be set in them",
                fix="use a newer torch (2.9 does)",
            )
        graph = self._alive(live)
        if "patches" not in live.notes:
            placed, _ = place(_raw_graph(graph))
            live.notes["patches"] = Patches(placed, lambda: _raw_executable(watch.graph_of(live)))
        del graph  # the user decides how long it lives
        with live.notes["patches"].applied(edits):
            yield

    def trace_origins(
        self, capture: Callable[[], object], modules: Mapping[str, torch.nn.Module] | None = None
    ) -> list[origins.Trace]:
        """Run `capture` watched, and tell for each graph that it captures who launched its nodes.

        The hooks have to be installed. Give a trace to `origins.attach` with the graph that is judged.
        """
        return origins.trace(
            self.log,
            capture,
            modules or {},
            progress=_capture_progress,
            names=lambda live: kernel_names(_raw_graph(self._alive(live))),
        )

    def blocks(self) -> list[Block]:
        """All live allocations on the current device but the doctor's own, by address."""
        return memory.live_blocks(memory.snapshot(), torch.cuda.current_device(), without=self._own.name)

    def bytes_of(self, block: Block) -> torch.Tensor:
        """A uint8 tensor over the block's memory: a view, not a copy. Shape (block.bytes,)."""
        return memory.bytes_at(block.address, block.bytes, torch.cuda.current_device())

    def scratch(self, pool: str) -> list[Block]:
        """Blocks of the pool's segments that no tensor owns."""
        return memory.free_blocks(memory.snapshot(), torch.cuda.current_device(), pool)

    def own_memory(self) -> AbstractContextManager[None]:
        """What this thread allocates inside the block is the doctor's: `blocks()` leaves it out."""
        return self._own.used()

    def free_bytes(self) -> int:
        """Device memory that can still be allocated: free, or held by torch's allocator and unused."""
        free, _ = torch.cuda.mem_get_info()
        return int(free) + memory.returnable_bytes(memory.snapshot(), torch.cuda.current_device())

    def delay(self, milliseconds: float) -> None:
        """Keep the current stream busy for about this long. The first call synchronises, to measure the clock."""
        if not self._cycles_per_ms:
            self._cycles_per_ms = _measure_cycles_per_ms()
        torch.cuda._sleep(int(milliseconds * self._cycles_per_ms))

    def is_host(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor lies in host memory."""
        return tensor.device.type == "cpu"

    def place_of(self, tensor: torch.Tensor) -> Place:
        """In which memory the tensor lies."""
        if tensor.device.type != "cpu":
            return Place.DEVICE
        return Place.PINNED if tensor.is_pinned() else Place.HOST

    def capture_status(self, stream: int) -> CaptureStatus:
        """Whether the stream with this handle captures."""
        return driver.capture_status(stream)

    def answering(self, answer: Callable[[], bool | None]) -> AbstractContextManager[None]:
        """Who asks inside the block whether the current stream captures gets `answer()`, the truth if that is None."""
        ask = vars(torch.cuda.graphs)[_ASKED]

        def answered() -> bool:
            given = answer()
            return bool(ask()) if given is None else given

        return replaced(torch.cuda.graphs, {_ASKED: answered})

    def _captured(self, live: LiveGraph, graph: Any) -> None:
        """Note at the end of a capture what cannot be found out later."""
        live.pool = memory.pool_name(graph.pool())
        live.nodes = driver.node_count(_raw_graph(graph))
        # An input freed later may be given back to the driver: then only this remembers that it was torch's.
        self._segments_seen.update((segment.address, segment.bytes) for segment in memory.snapshot())

    def _alive(self, live: LiveGraph) -> Any:
        graph = watch.graph_of(live)
        if graph is None:
            where = live.captured_at
            line = f" (captured at {where.file}:{where.line})" if where else ""
            raise Inconclusive(
                f"graph {live.ordinal}{line} is gone: its CUDAGraph was dropped, reset or captured anew",
                fix="keep the CUDAGraph alive for as long as it is looked at",
            )
        return graph


def _raw_graph(graph: Any) -> int:
    """The cudaGraph_t; asked of torch's own class, since the watching one refuses it as torch would have."""
    return int(torch._C._CUDAGraph.raw_cuda_graph(graph))


def _gives_executable() -> bool:
    """Whether this torch gives out the cudaGraphExec_t."""
    return hasattr(torch._C._CUDAGraph, "raw_cuda_graph_exec")


def _raw_executable(graph: Any) -> int | None:
    """The cudaGraphExec_t, None if the graph is gone or not instantiated."""
    if graph is None:
        return None
    try:
        return int(torch._C._CUDAGraph.raw_cuda_graph_exec(graph))
    except RuntimeError:
        return None


def _capture_progress() -> tuple[int, int] | None:
    """(capture id, nodes so far) of the current stream, None if it does not capture."""
    capturing = driver.capture_of(torch.cuda.current_stream().cuda_stream)
    return None if capturing is None else (capturing[0], driver.node_count(capturing[1]))


def _measure_cycles_per_ms(cycles: int = 20_000_000) -> float:
    """How fast the counter runs that `torch.cuda._sleep` waits on. Synchronises."""
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(cycles)  # the clock may have been low
    start.record()
    torch.cuda._sleep(cycles)
    stop.record()
    stop.synchronize()
    return cycles / float(start.elapsed_time(stop))
