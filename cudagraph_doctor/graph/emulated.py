"""The emulated backend: captures by recording operators on a CPU, for tests, staging code and CI without a GPU.

What it stands on is in `emulation/`; start with its `__init__`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

import torch

from cudagraph_doctor.errors import Inconclusive
from cudagraph_doctor.graph.backend import Block, Edit, GraphLog, LiveGraph
from cudagraph_doctor.graph.emulation.device import EmulatedDevice, free_memory_bytes
from cudagraph_doctor.graph.emulation.installation import in_place
from cudagraph_doctor.graph.emulation.memory import bytes_view, place_of
from cudagraph_doctor.graph.emulation.not_refused import NOT_REFUSED, REFUSED_IN_VAIN
from cudagraph_doctor.graph.emulation.parameters import patched
from cudagraph_doctor.graph.emulation.reading import read
from cudagraph_doctor.graph.emulation.recording import Recording
from cudagraph_doctor.graph.illegal import CaptureStatus, Place
from cudagraph_doctor.graph.model import CapturedGraph
from cudagraph_doctor.graph.origins import Trace
from cudagraph_doctor.graph.regions import Regions

_NOT_CHECKED = (
    "CUDA kernels and their numerics: operators ran in their CPU form",
    "races between streams: work ran in the order it was issued",
    "reuse of graph pool memory by later captures, and of freed memory: every allocation has its own address",
    "code compiled by torch.compile: it ran eagerly",
    'paths taken for `x.is_cuda` or `x.device.type == "cuda"`: a tensor of the emulated device says "cpu:0"',
    "host tensors used together with device tensors: not refused as CUDA does",
    "tensors that other threads than the main one make or change",
    "memory written without an operator (numpy views, ctypes): its writes are not recorded into graphs",
)


class EmulatedBackend:
    """See `backend.Backend`. Device memory is what was asked for on "cpu:0" (or "cuda", in the target's own code)."""

    name = "emulated"
    device = "cpu:0"

    def __init__(self) -> None:
        self._device = EmulatedDevice()

    @property
    def log(self) -> GraphLog:
        """Captures and replays as they happen."""
        return self._device.log

    def installed(self) -> AbstractContextManager[None]:
        """The stand-ins are in `torch.cuda`, and operators of this thread are watched."""
        return in_place(self._device)

    def not_checked(self) -> tuple[str, ...]:
        """What the emulation cannot see, and where it answers otherwise than CUDA."""
        answers = {
            "what a capture refuses on CUDA only": NOT_REFUSED,
            "whether CUDA refuses it too, which it does not where it was tried": REFUSED_IN_VAIN,
        }
        return (*_NOT_CHECKED, *(f"{what}: {', '.join(names)}" for what, names in answers.items() if names))

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def read(self, live: LiveGraph, regions: Regions, key: str = "") -> CapturedGraph:
        """The recorded operators. Raises Inconclusive if the graph is gone."""
        with torch._C._DisableTorchDispatch():
            return read(self._recording(live), self._device.heap, regions, key)

    @contextmanager
    def patched(self, live: LiveGraph, edits: Sequence[Edit]) -> Iterator[None]:
        """Replays inside the block run with these parameters. Raises Inconclusive if one cannot be set."""
        nodes = self._recording(live).nodes
        missing = {edit.node for edit in edits} - set(range(len(nodes)))
        if missing:
            raise Inconclusive(
                f"graph {live.ordinal} has no node {min(missing)}", seen=f"{len(nodes)} nodes", fix="read it again"
            )
        by_node = {edit.node: [e for e in edits if e.node == edit.node] for edit in edits}
        before = {index: (nodes[index].args, nodes[index].kwargs, nodes[index].outputs) for index in by_node}
        with torch._C._DisableTorchDispatch():
            new = {index: patched(nodes[index], some, self._device.heap) for index, some in by_node.items()}
        try:
            for index, (args, kwargs, outputs) in new.items():
                nodes[index].args, nodes[index].kwargs, nodes[index].outputs = args, kwargs, outputs
            yield
        finally:
            for index, (args, kwargs, outputs) in before.items():
                nodes[index].args, nodes[index].kwargs, nodes[index].outputs = args, kwargs, outputs

    def trace_origins(
        self, capture: Callable[[], object], modules: Mapping[str, torch.nn.Module] | None = None
    ) -> list[Trace]:
        """Nothing to add: `read` gives nodes with their origin. `capture` is not run."""
        return []

    def blocks(self) -> list[Block]:
        """All live device storages but the doctor's own, by address."""
        return self._device.heap.blocks()

    def bytes_of(self, block: Block) -> torch.Tensor:
        """A uint8 view of the block's memory, shape (block.bytes,). Raises Inconclusive if it is gone."""
        found = self._device.heap.storage_at(block.address)
        if found is None or found[0].data_ptr() != block.address or found[0].nbytes() < block.bytes:
            raise Inconclusive(
                f"the block of {block.bytes} bytes at {block.address:#x} is gone", fix="list the blocks again"
            )
        with torch._C._DisableTorchDispatch():
            return bytes_view(found[0])[: block.bytes]

    def scratch(self, pool: str) -> list[Block]:
        """What was allocated in the pool and only graphs refer to."""
        return self._device.heap.scratch(pool)

    def own_memory(self) -> AbstractContextManager[None]:
        """What is allocated inside the block is the doctor's."""
        return self._device.heap.own_memory()

    def free_bytes(self) -> int:
        """Memory of the machine that is not in use."""
        return free_memory_bytes()

    def delay(self, milliseconds: float) -> None:
        """Nothing: work runs when it is issued."""

    def is_host(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor is not in the emulated device's memory."""
        return place_of(tensor) is not Place.DEVICE

    def place_of(self, tensor: torch.Tensor) -> Place:
        """In which memory the tensor lies; one that was never seen is the host's."""
        return place_of(tensor) or Place.HOST

    def capture_status(self, stream: int) -> CaptureStatus:
        """Whether the stream with this handle takes part in the capture under way."""
        capture = self._device.capture
        if capture is None or stream not in capture.tails:
            return CaptureStatus.NONE
        return CaptureStatus.ACTIVE if capture.invalid is None else CaptureStatus.INVALIDATED

    @contextmanager
    def answering(self, answer: Callable[[], bool | None]) -> Iterator[None]:
        """Who asks inside the block whether the current stream captures gets `answer()`, the truth if that is None."""
        before, self._device.answer = self._device.answer, answer
        try:
            yield
        finally:
            self._device.answer = before

    def _recording(self, live: LiveGraph) -> Recording:
        graph = live.graph()
        if graph is None or graph.live is not live:
            raise Inconclusive(
                f"graph {live.ordinal} is gone",
                seen="the target dropped or reset its CUDAGraph",
                fix="keep the graph alive as long as it is looked at",
            )
        recording: Recording = graph.recording
        return recording
