"""Libraries, threads and other graphs in the way of a capture, each beside its clean twin (see `capture_faults.py`)."""

from __future__ import annotations

import gc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ClassVar

import torch
from torch import nn

from cudagraph_doctor.reference_models.decode import DecoderConfig
from cudagraph_doctor.reference_models.faulty_capture import Outputs, Sampler, behind
from cudagraph_doctor.reference_models.faulty_streams import Loaded
from cudagraph_doctor.reference_models.inputs import DecodeInputs
from cudagraph_doctor.reference_models.loop import ReferenceLoop

# cuda-malloc, library-synchronize


class Library(Sampler):
    """Calls the CUDA runtime past torch, as an extension does, and looks at no return value."""

    def __init__(self, config: DecoderConfig, device: str) -> None:
        super().__init__(config, device)
        self.runtime: Any = None
        if torch.device(device).type == "cuda":
            from cuda.bindings import runtime

            self.runtime = runtime


class RawScratch(Library):
    """Scratch memory of its own in every call."""

    def aside(self, logits: torch.Tensor, inputs: DecodeInputs) -> None:
        """Allocate, and free."""
        if self.runtime is not None:
            _, address = self.runtime.cudaMalloc(1 << 20)  # planted: cuda-malloc CGD207
            if address:
                self.runtime.cudaFree(address)


class TorchsScratch(Library):
    """torch keeps it in the graph's pool."""

    def aside(self, logits: torch.Tensor, inputs: DecodeInputs) -> None:
        """Allocate, and free."""
        torch.empty(1 << 20, dtype=torch.uint8, device=self.device)


class LibraryWaits(Library):
    """Waits for what it has launched."""

    def aside(self, logits: torch.Tensor, inputs: DecodeInputs) -> None:
        """Wait for the device."""
        if self.runtime is not None:
            self.runtime.cudaDeviceSynchronize()  # planted: library-synchronize CGD218


class LibraryWaitsEagerly(Library):
    """The caller keeps the library away from captures."""

    def aside(self, logits: torch.Tensor, inputs: DecodeInputs) -> None:
        """Wait for the device, where that can be done."""
        if self.runtime is not None and not torch.cuda.is_current_stream_capturing():
            self.runtime.cudaDeviceSynchronize()


# nested-capture


class Codec(nn.Module):
    """Makes sound of tokens, with a graph of its own that it captures for each input: their addresses change."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.codes = torch.zeros((), dtype=torch.int64, device=device)
        self.graphs: list[torch.cuda.CUDAGraph] = []

    def forward(self, tokens: torch.Tensor) -> None:
        """(n,) int64 -> the codec's own buffer."""
        if not self.may_capture():
            self.decode(tokens)
            return
        self.graphs.append(torch.cuda.CUDAGraph())
        with torch.cuda.graph(self.graphs[-1]):  # planted: nested-capture CGD210
            self.decode(tokens)
        self.graphs[-1].replay()

    def decode(self, tokens: torch.Tensor) -> None:
        """What the graph holds."""
        self.codes.copy_(tokens.sum())

    def may_capture(self) -> bool:
        """Whether its own graph is used."""
        return True


class ConsiderateCodec(Codec):
    """Steps back when somebody else captures."""

    def may_capture(self) -> bool:
        """Whether its own graph is used."""
        return not torch.cuda.is_current_stream_capturing()


class Spoken(ReferenceLoop):
    """The reference model with a codec behind it."""

    def __init__(self, *args: Any, codec: type[Codec]) -> None:
        super().__init__(*args)
        self.codec = self.model.codec = codec(self.device)

    def forward(self, inputs: DecodeInputs) -> Outputs:
        """The decode step."""
        outputs = super().forward(inputs)
        self.codec(outputs["tokens"])
        return outputs


# other-thread-event, other-thread-pinned


class Watched(Loaded):
    """A thread polls an event, and the step goes on when it has done so: nothing is left to chance."""

    def __init__(self, config: DecoderConfig, device: str) -> None:
        super().__init__(config, device)
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="event-poller")

    def poll(self) -> bool:
        """What the thread does."""
        return bool(self.loaded.query())  # planted: other-thread-event CGD211

    def aside(self, logits: torch.Tensor, inputs: DecodeInputs) -> None:
        """Let the thread have its turn; what it raises is its own business."""
        self.thread.submit(self.poll).exception()


class WatchedBetween(Watched):
    """The thread is kept still in captures."""

    def aside(self, logits: torch.Tensor, inputs: DecodeInputs) -> None:
        """Let the thread have its turn, where it does no harm."""
        if not torch.cuda.is_current_stream_capturing():
            super().aside(logits, inputs)


class Fed(Sampler):
    """A thread loads batches into pinned memory. They stay for good, so that each one needs new memory."""

    batches: ClassVar[list[torch.Tensor]] = []

    def __init__(self, config: DecoderConfig, device: str) -> None:
        super().__init__(config, device)
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="loader")

    def load(self) -> None:
        """What the thread does."""
        self.batches.append(torch.zeros(4096).pin_memory())  # planted: other-thread-pinned CGD211

    def aside(self, logits: torch.Tensor, inputs: DecodeInputs) -> None:
        """Let the thread have its turn; what it raises is its own business."""
        self.thread.submit(self.load).exception()


class FedBetween(Fed):
    """The thread is kept still in captures."""

    def aside(self, logits: torch.Tensor, inputs: DecodeInputs) -> None:
        """Let the thread have its turn, where it does no harm."""
        if not torch.cuda.is_current_stream_capturing():
            super().aside(logits, inputs)


# graph-collected


class Recorded:
    """A graph in a reference cycle: only the garbage collector frees it."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            tensor.zero_()
        self.itself = self


class Collecting(Sampler):
    """Each eager step leaves a graph, which the next step drops and collects."""

    old: Recorded | None = None

    def aside(self, logits: torch.Tensor, inputs: DecodeInputs) -> None:
        """Clean up."""
        self.old = None
        gc.collect()  # planted: graph-collected CGD212
        if not torch.cuda.is_current_stream_capturing():
            self.old = Recorded(self.seen)


class CollectingBefore(Collecting):
    """The graph is kept as long as somebody captures."""

    def aside(self, logits: torch.Tensor, inputs: DecodeInputs) -> None:
        """Clean up, where it does no harm."""
        if not torch.cuda.is_current_stream_capturing():
            super().aside(logits, inputs)


PLANTED: dict[str, tuple[Callable[..., ReferenceLoop], Callable[..., ReferenceLoop]]] = {
    "cuda-malloc": (behind(RawScratch), behind(TorchsScratch)),
    "library-synchronize": (behind(LibraryWaits), behind(LibraryWaitsEagerly)),
    "nested-capture": (partial(Spoken, codec=Codec), partial(Spoken, codec=ConsiderateCodec)),
    "other-thread-event": (behind(Watched), behind(WatchedBetween)),
    "other-thread-pinned": (behind(Fed), behind(FedBetween)),
    "graph-collected": (behind(Collecting), behind(CollectingBefore)),
}
"""Fault and clean twin by the fault's name."""
