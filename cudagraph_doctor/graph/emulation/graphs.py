"""Stand-ins for `torch.cuda.CUDAGraph` and `torch.cuda.graph`."""

from __future__ import annotations

import sys
import weakref
from typing import Any

import torch

from cudagraph_doctor.graph.backend import LiveGraph
from cudagraph_doctor.graph.emulation import faults
from cudagraph_doctor.graph.emulation.capture import Capture
from cudagraph_doctor.graph.emulation.device import DEFAULT_STREAM, EmulatedDevice, active
from cudagraph_doctor.graph.emulation.recording import Recording
from cudagraph_doctor.graph.emulation.streams import Stream, StreamContext, synchronize
from cudagraph_doctor.graph.emulation.watch import watching

Pool = tuple[int, int]


def pool_text(pool: Pool) -> str:
    """A pool's identity as text."""
    return f"{pool[0]}.{pool[1]}"


def graph_pool_handle() -> Pool:
    """Stand-in for `torch.cuda.graph_pool_handle`."""
    return active().new_pool()


def is_current_stream_capturing() -> bool:
    """Stand-in for `torch.cuda.is_current_stream_capturing`."""
    return active().says_capturing()


class CUDAGraph:
    """Stand-in for `torch.cuda.CUDAGraph`: records operators and runs them again."""

    def __new__(cls, *args: Any, **kwargs: Any) -> CUDAGraph:
        """Takes what torch's own takes, for subclasses that pass `keep_graph` up."""
        return super().__new__(cls)

    def __init__(self, keep_graph: bool = False) -> None:
        self._device: EmulatedDevice = active()
        self._keep_graph = keep_graph
        self._generators: list[torch._C.Generator] = []
        self._capture: Capture | None = None
        self._pool: Pool | None = None
        self._handling: BaseException | None = None
        self.live: LiveGraph | None = None
        """What the log was told of it; None if it was told nothing, or after `reset`."""
        self.recording: Recording | None = None
        """What was captured; None before a successful capture and after `reset`."""

    def register_generator_state(self, generator: torch._C.Generator) -> None:
        """Let operators of the capture draw from this generator."""
        self._generators.append(generator)

    def capture_begin(
        self, pool: Pool | None = None, capture_error_mode: str = "global", check_input_liveness: bool = False
    ) -> None:
        """Record what is issued to the current stream from now on."""
        if capture_error_mode not in ("global", "thread_local", "relaxed"):
            raise RuntimeError(
                "Unknown capture error mode. Expected `global`, `thread_local`, or `relaxed`, got " + capture_error_mode
            )
        if self.recording is not None:
            raise RuntimeError(faults.SECOND_CAPTURE)
        if self._device.capture is not None:
            raise self._device.capture.fail(900, "capture_begin() while another capture is under way")
        if not watching(self._device):
            raise faults.not_emulated("a capture in another thread than the one that loaded the target")
        if self._device.current_stream == DEFAULT_STREAM:
            raise RuntimeError(faults.DEFAULT_STREAM)
        self._pool = self._device.new_pool() if pool is None else pool
        self._capture = Capture(self._device, pool_text(self._pool), self._generators, capture_error_mode)
        self._device.capture = self._capture
        self._handling = sys.exc_info()[1]

    def capture_end(self) -> None:
        """End the capture; the graph can be replayed afterwards."""
        capture = self._capture
        if capture is None or self._device.capture is not capture:
            raise faults.no_capture("capture_end()")
        if capture.origin != self._device.current_stream:
            raise RuntimeError(faults.OTHER_STREAM)
        self._capture = self._device.capture = None
        with torch._C._DisableTorchDispatch():
            self.recording = capture.end()
        # The body of `with torch.cuda.graph(...)` raised: the graph holds a part of the step only.
        if sys.exc_info()[1] is not self._handling:
            return
        self.live = LiveGraph(
            ordinal=len(self._device.log.graphs),
            graph=weakref.ref(self),
            captured_at=capture.opened_at,
            pool=capture.pool,
            nodes=len(self.recording.nodes),
        )
        self._device.log.captured(self.live)

    def instantiate(self) -> None:
        """Nothing to do: a recording can run as it is."""
        if not self._keep_graph:
            raise RuntimeError("instantiate() is intended to be called by the user only when keep_graph=true")
        self._recorded("instantiate")

    def replay(self) -> None:
        """Run what was recorded, on the memory that it was recorded on."""
        recording = self._recorded("replay")
        if self._device.recording() is not None:
            raise faults.not_emulated("CUDAGraph.replay() inside a capture (a child graph)")
        if self.live is not None:
            self._device.log.replaying(self.live)
        recording.replay()

    def reset(self) -> None:
        """Drop what was recorded."""
        self.recording = None
        self.live = None

    def pool(self) -> Pool:
        """Identity of the graph's memory pool."""
        if self._pool is None:
            raise faults.no_capture("pool()")
        return self._pool

    def enable_debug_mode(self) -> None:
        """Nothing to do."""

    def debug_dump(self, debug_path: str) -> None:
        """Not emulated."""
        raise faults.not_emulated("CUDAGraph.debug_dump()")

    def raw_cuda_graph(self) -> int:
        """Not emulated: there is no cudaGraph_t."""
        raise faults.not_emulated("CUDAGraph.raw_cuda_graph()")

    def raw_cuda_graph_exec(self) -> int:
        """Not emulated: there is no cudaGraphExec_t."""
        raise faults.not_emulated("CUDAGraph.raw_cuda_graph_exec()")

    def _recorded(self, method: str) -> Recording:
        if self.recording is None:
            raise faults.no_capture(method)
        return self.recording


class graph:
    """Stand-in for `torch.cuda.graph`: captures what is issued inside the block.

    When the capture fails the capture stream stays current, as with torch's own.
    """

    default_capture_stream: Stream | None = None

    def __init__(
        self,
        cuda_graph: CUDAGraph,
        pool: Pool | None = None,
        stream: Stream | None = None,
        capture_error_mode: str = "global",
        enable_annotations: bool = False,
        check_input_liveness: bool = False,
    ) -> None:
        if stream is None and graph.default_capture_stream is None:
            graph.default_capture_stream = Stream()
        self.cuda_graph = cuda_graph
        self.pool = pool
        self.capture_stream = graph.default_capture_stream if stream is None else stream
        self.capture_error_mode = capture_error_mode
        self._stream_context = StreamContext(self.capture_stream)

    def __enter__(self) -> None:
        synchronize()
        self._stream_context.__enter__()
        self.cuda_graph.capture_begin(self.pool, capture_error_mode=self.capture_error_mode)

    def __exit__(self, *exc: Any) -> None:
        self.cuda_graph.capture_end()
        self._stream_context.__exit__(*exc)
