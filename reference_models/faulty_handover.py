"""Values handed over between host, engine and graph too early, too late or not at all (see `input_faults.py`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from cudagraph_doctor.reference_models.decode import Decoder, DecoderConfig
from cudagraph_doctor.reference_models.engine import HALVES, ReferenceEngine
from cudagraph_doctor.reference_models.inputs import PADDING, DecodeInputs, padding, stage, true_inputs
from cudagraph_doctor.reference_models.requests import MAX_ROWS

Outputs = dict[str, torch.Tensor]


def pinned(tensor: torch.Tensor, device: str) -> torch.Tensor:
    """`tensor` in memory that a device copies from and to without holding up the host."""
    return tensor.pin_memory() if torch.device(device).type == "cuda" else tensor


# pinned-buffer-rewritten


class PinnedBufferRewritten(ReferenceEngine):
    """The host writes every step into one pinned buffer, whether or not the step before was copied from it."""

    def __init__(self, *args: Any) -> None:
        blank = padding(MAX_ROWS, "cpu")
        self.host = DecodeInputs(*(pinned(getattr(blank, name), args[1]) for name in PADDING))
        super().__init__(*args)

    def prepare(self, i: int, n: int, device: str) -> DecodeInputs:
        """What the scheduler hands over for this step, in the pinned buffer if the host shall have it."""
        if device != "cpu":
            return super().prepare(i, n, device)
        self.wait_until_copied(i - 1)
        inputs = true_inputs(i, n, self.config.vocab_size, self.config.num_blocks, self.seed, device)
        stage(self.host, inputs)  # planted: pinned-buffer-rewritten CGD311
        return self.host.rows(n)

    def wait_until_copied(self, i: int) -> None:
        """Have the host wait until the copies of step `i` are done."""


class PinnedBufferWaitedFor(PinnedBufferRewritten):
    """The host waits for the event behind the copies."""

    def wait_until_copied(self, i: int) -> None:
        """Have the host wait until the copies of step `i` are done."""
        self.staged[HALVES[i % 2]].synchronize()


# host-read-too-early


class HostReadTooEarly(ReferenceEngine):
    """Behind the replay the tokens are copied to the host, which looks at them before they have come."""

    def __init__(self, *args: Any) -> None:
        self.tokens_on_host = pinned(torch.zeros(MAX_ROWS, dtype=torch.int64), args[1])
        super().__init__(*args)

    def finish(self, i: int, outputs: Outputs) -> Outputs:
        """Which requests are done: those whose token is even."""
        tokens = self.mirrored(outputs["tokens"]) if self.use_graphs else outputs["tokens"].cpu()
        return {**super().finish(i, outputs), "done": (tokens % 2 == 0).to(self.device)}

    def mirrored(self, tokens: torch.Tensor) -> torch.Tensor:
        """The tokens in the host's memory."""
        mirror = self.tokens_on_host[: len(tokens)]
        mirror.copy_(tokens, non_blocking=True)  # planted: host-read-too-early CGD312
        self.wait_until_copied()
        return mirror

    def wait_until_copied(self) -> None:
        """Have the host wait until the copy is done."""


class HostReadBehindEvent(HostReadTooEarly):
    """The host waits for the copy."""

    def wait_until_copied(self) -> None:
        """Have the host wait until the copy is done."""
        copied = torch.cuda.Event()
        copied.record()
        copied.synchronize()


# attribute-read-outside


class NotingDecoder(Decoder):
    """Notes the longest length, for whoever wants to know."""

    longest: torch.Tensor

    def forward(self, inputs: DecodeInputs) -> Outputs:
        """One decode step."""
        self.longest = inputs.seq_lens.max()  # planted: attribute-read-outside CGD317
        return super().forward(inputs)


class TellingDecoder(Decoder):
    """Puts the longest length out with all else."""

    def forward(self, inputs: DecodeInputs) -> Outputs:
        """One decode step; "longest" (n,) is the same in all rows."""
        return {**super().forward(inputs), "longest": inputs.seq_lens.max().expand(len(inputs.seq_lens))}


class AttributeReadOutside(ReferenceEngine):
    """The length noted in the model is looked at behind the replay: it is the one that the last capture or eager step
    noted. Graphs that share a pool may by chance leave theirs at one address: then replays alone look right.
    """

    decoder: type[Decoder] = NotingDecoder

    def __init__(self, config: DecoderConfig, device: str, dtype: torch.dtype, seed: int) -> None:
        super().__init__(config, device, dtype, seed, enforce_eager=True)
        self.model = self.decoder(config, device, dtype, seed)
        self.graphs(True)

    def longest(self, outputs: Outputs) -> torch.Tensor:
        """The longest length in this step."""
        longest: torch.Tensor = self.model.longest  # type: ignore[assignment]  # a NotingDecoder's
        return longest

    def finish(self, i: int, outputs: Outputs) -> Outputs:
        """Sharpen long contexts."""
        logits = outputs["logits"].float() * (self.longest(outputs) / 32)
        return {"logits": logits, "tokens": logits.argmax(dim=-1)}


class LengthPutOut(AttributeReadOutside):
    """The length is an output of the graph."""

    decoder = TellingDecoder

    def recapture(self) -> None:
        """Capture all graphs anew."""
        self.outputs["longest"] = torch.zeros(MAX_ROWS, device=self.device, dtype=torch.int32)
        super().recapture()

    def longest(self, outputs: Outputs) -> torch.Tensor:
        """The longest length in this step."""
        return outputs["longest"][0]


# key-without-length


class KeyWithoutLength(ReferenceEngine):
    """Graphs are captured on first use and looked up by batch size; how far attention looks is baked into them."""

    blocks = 1
    """Columns of the block table that attention is given."""

    def recapture(self) -> None:
        """Drop all graphs: what is needed is captured when it is needed."""
        sizes, self.captured_sizes = self.captured_sizes, ()
        super().recapture()
        self.captured_sizes = sizes
        self.pool = torch.cuda.graph_pool_handle()

    def replay(self, i: int, n: int) -> Outputs:
        """Capture the step's graph if there is none, and replay it."""
        bucket, half = key = self.key(i, n)
        if key not in self.captured:
            torch.cuda.synchronize()
            stage(self.static[half], padding(0, self.device))
            self.blocks = self.needed(i, n)
            self.captured[key] = self.capture(bucket, self.static[half], self.pool)
        return super().replay(i, n)

    def needed(self, i: int, n: int) -> int:
        """How many blocks the longest request of a step has."""
        return self.prepare(i, n, "cpu").block_table.size(1)

    def run(self, bucket: int, static: DecodeInputs) -> None:
        """The captured work."""
        super().run(bucket, replace(static, block_table=static.block_table[:, : self.blocks]))


class KeyWithLength(KeyWithoutLength):
    """How far attention looks is part of the key."""

    def key(self, i: int, n: int) -> tuple[int, str]:
        """What the graph of a step is looked up by."""
        bucket, half = super().key(i, n)
        name = f"{half}, {self.needed(i, n)} blocks"
        self.static[name] = self.static[half]
        self.staged[name], self.consumed[name] = self.staged[half], self.consumed[half]
        return bucket, name


PLANTED: dict[str, tuple[type[ReferenceEngine], type[ReferenceEngine]]] = {
    "pinned-buffer-rewritten": (PinnedBufferRewritten, PinnedBufferWaitedFor),
    "host-read-too-early": (HostReadTooEarly, HostReadBehindEvent),
    "attribute-read-outside": (AttributeReadOutside, LengthPutOut),
    "key-without-length": (KeyWithoutLength, KeyWithLength),
}
"""Fault and clean twin by the fault's name."""
