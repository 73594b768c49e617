"""Streams and events in a captured step, each beside its clean twin (see `capture_faults.py`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from cudagraph_doctor.reference_models.decode import DecoderConfig
from cudagraph_doctor.reference_models.faulty_capture import Outputs, Sampler, behind
from cudagraph_doctor.reference_models.inputs import DecodeInputs
from cudagraph_doctor.reference_models.loop import ReferenceLoop

# synchronize, stream-synchronize, stream-query


class Synchronized(Sampler):
    """Left from a measurement."""

    def aside(self, logits: torch.Tensor, inputs: DecodeInputs) -> None:
        """Wait for the device."""
        torch.cuda.synchronize()  # planted: synchronize CGD204


class SynchronizedEagerly(Sampler):
    """Somebody thought of captures."""

    def aside(self, logits: torch.Tensor, inputs: DecodeInputs) -> None:
        """Wait for the device, where that can be done."""
        if not torch.cuda.is_current_stream_capturing():
            torch.cuda.synchronize()


class OnTheSide(Sampler):
    """Has a stream of its own."""

    def __init__(self, config: DecoderConfig, device: str) -> None:
        super().__init__(config, device)
        self.side = torch.cuda.Stream()


class StreamWaitedFor(OnTheSide):
    """The host waits."""

    def aside(self, logits: torch.Tensor, inputs: DecodeInputs) -> None:
        """Wait until the logits are there."""
        torch.cuda.current_stream().synchronize()  # planted: stream-synchronize CGD204


class StreamPolled(OnTheSide):
    """The host waits by asking."""

    def aside(self, logits: torch.Tensor, inputs: DecodeInputs) -> None:
        """Wait until the logits are there."""
        while not torch.cuda.current_stream().query():  # planted: stream-query CGD205
            pass


class StreamPolledEagerly(OnTheSide):
    """Asks only where an answer can be given."""

    def aside(self, logits: torch.Tensor, inputs: DecodeInputs) -> None:
        """Wait until the logits are there, where that can be done."""
        while not torch.cuda.is_current_stream_capturing() and not torch.cuda.current_stream().query():
            pass


# unjoined-stream


class ForkedOnly(OnTheSide):
    """Nobody needs the result in this step."""

    def aside(self, logits: torch.Tensor, inputs: DecodeInputs) -> None:
        """Note the largest logit."""
        self.side.wait_stream(torch.cuda.current_stream())  # planted: unjoined-stream CGD208
        with torch.cuda.stream(self.side):
            self.seen.copy_(logits.amax())


class ForkedAndJoined(OnTheSide):
    """The graph has an end."""

    def aside(self, logits: torch.Tensor, inputs: DecodeInputs) -> None:
        """Note the largest logit."""
        main = torch.cuda.current_stream()
        self.side.wait_stream(main)
        with torch.cuda.stream(self.side):
            self.seen.copy_(logits.amax())
        main.wait_stream(self.side)


# event-synchronize, event-query, foreign-event


class Loaded(OnTheSide):
    """Weights come on the side stream; an event tells when they are there."""

    def __init__(self, config: DecoderConfig, device: str) -> None:
        super().__init__(config, device)
        self.loaded = torch.cuda.Event()
        with torch.cuda.stream(self.side):
            self.weights = torch.ones(config.vocab_size, device=device)
            self.loaded.record()
        self.loaded.synchronize()


class LoadedWaitedFor(Loaded):
    """The host waits."""

    def aside(self, logits: torch.Tensor, inputs: DecodeInputs) -> None:
        """Note the weighted sum."""
        self.loaded.synchronize()  # planted: event-synchronize CGD204
        self.seen.copy_((logits * self.weights).sum())


class LoadedPolled(Loaded):
    """The host asks."""

    def aside(self, logits: torch.Tensor, inputs: DecodeInputs) -> None:
        """Note the weighted sum, once there are weights."""
        if self.loaded.query():  # planted: event-query CGD205
            self.seen.copy_((logits * self.weights).sum())


class LoadedOrdered(Loaded):
    """The device waits, for something that is not in the graph."""

    def aside(self, logits: torch.Tensor, inputs: DecodeInputs) -> None:
        """Note the weighted sum."""
        torch.cuda.current_stream().wait_event(self.loaded)  # planted: foreign-event CGD209
        self.seen.copy_((logits * self.weights).sum())


class LoadedBefore(Loaded):
    """Nothing has to be waited for any more; an event says when the sum is there."""

    def __init__(self, config: DecoderConfig, device: str) -> None:
        super().__init__(config, device)
        self.noted = torch.cuda.Event()

    def aside(self, logits: torch.Tensor, inputs: DecodeInputs) -> None:
        """Note the weighted sum."""
        self.seen.copy_((logits * self.weights).sum())
        self.noted.record()


class OrderedInside(Loaded):
    """The step waits for an event that it has recorded itself."""

    def aside(self, logits: torch.Tensor, inputs: DecodeInputs) -> None:
        """Note the weighted sum."""
        main = torch.cuda.current_stream()
        self.side.wait_event(main.record_event())
        with torch.cuda.stream(self.side):
            self.seen.copy_((logits * self.weights).sum())
        main.wait_event(self.side.record_event())


# default-stream-launch


class CountedElsewhere(Sampler):
    """Legal, and not in the graph."""

    def aside(self, logits: torch.Tensor, inputs: DecodeInputs) -> None:
        """Count the step."""
        with torch.cuda.stream(torch.cuda.default_stream()):
            self.seen.add_(1)  # planted: default-stream-launch CGD214


class CountedHere(Sampler):
    """In the graph."""

    def aside(self, logits: torch.Tensor, inputs: DecodeInputs) -> None:
        """Count the step."""
        with torch.cuda.stream(torch.cuda.current_stream()):
            self.seen.add_(1)


# skipped-in-capture


class CountedEagerly(Sampler):
    """Somebody took it for something that captures forbid."""

    def aside(self, logits: torch.Tensor, inputs: DecodeInputs) -> None:
        """Count the step, unless it is captured."""
        if not torch.cuda.is_current_stream_capturing():
            self.seen.add_(1)  # planted: skipped-in-capture CGD220


class CheckedEagerly(Sampler):
    """Nothing comes of what is left out."""

    def aside(self, logits: torch.Tensor, inputs: DecodeInputs) -> None:
        """Count the step; look at the logits unless it is captured."""
        self.seen.add_(1)
        if not torch.cuda.is_current_stream_capturing() and not logits.isfinite().all():
            raise FloatingPointError("the logits ran away")


# empty-graph


class OnItsOwnStream(ReferenceLoop):
    """The model has a stream of its own. Waiting for it made captures fail, and somebody got rid of the error."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.stream = torch.cuda.Stream()
        with torch.cuda.stream(self.stream):
            # as long as it lives torch's allocator has memory for this stream; without, captures fail of cudaMalloc
            self.bias = torch.zeros(self.config.vocab_size, device=self.device)

    def in_order(self) -> bool:
        """Whether the streams wait for each other."""
        return not torch.cuda.is_current_stream_capturing()

    def forward(self, inputs: DecodeInputs) -> Outputs:
        """The decode step."""
        main, in_order = torch.cuda.current_stream(), self.in_order()
        if in_order:
            self.stream.wait_stream(main)
        with torch.cuda.stream(self.stream):
            outputs = super().forward(inputs)  # planted: empty-graph CGD215
        if in_order:
            main.wait_stream(self.stream)
        return outputs


class OnAJoinedStream(OnItsOwnStream):
    """The streams wait for each other in a capture too."""

    def in_order(self) -> bool:
        """Whether the streams wait for each other."""
        return True


PLANTED: dict[str, tuple[Callable[..., ReferenceLoop], Callable[..., ReferenceLoop]]] = {
    "synchronize": (behind(Synchronized), behind(SynchronizedEagerly)),
    "stream-synchronize": (behind(StreamWaitedFor), behind(ForkedAndJoined)),
    "event-synchronize": (behind(LoadedWaitedFor), behind(LoadedBefore)),
    "stream-query": (behind(StreamPolled), behind(StreamPolledEagerly)),
    "event-query": (behind(LoadedPolled), behind(LoadedBefore)),
    "unjoined-stream": (behind(ForkedOnly), behind(ForkedAndJoined)),
    "foreign-event": (behind(LoadedOrdered), behind(OrderedInside)),
    "default-stream-launch": (behind(CountedElsewhere), behind(CountedHere)),
    "skipped-in-capture": (behind(CountedEagerly), behind(CheckedEagerly)),
    "empty-graph": (OnItsOwnStream, OnAJoinedStream),
}
"""Fault and clean twin by the fault's name."""
