"""Illegal operations planted into a captured step, each beside its clean twin (see `capture_faults.py`)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from cudagraph_doctor.reference_models.decode import MLP, DecoderConfig
from cudagraph_doctor.reference_models.inputs import TABLE_WIDTH, DecodeInputs, padding, stage
from cudagraph_doctor.reference_models.loop import ReferenceLoop
from cudagraph_doctor.reference_models.requests import BLOCK_SIZE

Outputs = dict[str, torch.Tensor]

LARGEST = 1e4
"""Numbers above have run away."""
MOST_STEPS = 1_000_000
"""What the engine has to be restarted after."""


class Sampler(nn.Module):
    """Greedy sampling. Subclasses do something on the side that the tokens do not depend on.

    Args:
        config: sizes of the model.
        device: where it runs.
    """

    seen: torch.Tensor

    def __init__(self, config: DecoderConfig, device: str) -> None:
        super().__init__()
        self.vocab_size = config.vocab_size
        self.device = device
        self.register_buffer("seen", torch.zeros((), device=device), persistent=False)

    def forward(self, logits: torch.Tensor, inputs: DecodeInputs) -> torch.Tensor:
        """(n, vocab) -> (n,) int64."""
        self.aside(logits, inputs)
        return logits.argmax(dim=-1)

    def aside(self, logits: torch.Tensor, inputs: DecodeInputs) -> None:
        """What is done besides."""


class Sampled(ReferenceLoop):
    """The reference model with a sampler behind it."""

    def __init__(self, *args: Any, sampler: type[Sampler]) -> None:
        super().__init__(*args)
        self.sampler = self.model.sampler = sampler(self.config, self.device)

    def forward(self, inputs: DecodeInputs) -> Outputs:
        """The decode step."""
        logits = super().forward(inputs)["logits"]
        return {"logits": logits, "tokens": self.sampler(logits, inputs)}


def behind(sampler: type[Sampler]) -> Callable[..., ReferenceLoop]:
    """A loop with this sampler."""
    return partial(Sampled, sampler=sampler)


# item


class RangeChecked(MLP):
    """Looks at its outputs."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """(n, hidden) -> (n, hidden)."""
        down = super().forward(hidden)
        if down.abs().amax().item() > LARGEST:  # planted: item CGD201
            raise OverflowError("the MLP's outputs ran away")
        return down


class Clamped(MLP):
    """Keeps its outputs small."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """(n, hidden) -> (n, hidden)."""
        return super().forward(hidden).clamp(-LARGEST, LARGEST)


class InSecondLayer(ReferenceLoop):
    """The reference model with another MLP in its second layer, of the same weights."""

    def __init__(self, config: DecoderConfig, device: str, dtype: torch.dtype, seed: int, mlp: type[MLP]) -> None:
        super().__init__(config, device, dtype, seed)
        layer: Any = self.model.layers[1]
        planted = mlp(config, device, dtype).requires_grad_(False)
        planted.load_state_dict(layer.mlp.state_dict())
        layer.mlp = planted


# if-tensor


class BranchOnTensor(Sampler):
    """Python asks."""

    def aside(self, logits: torch.Tensor, inputs: DecodeInputs) -> None:
        """Refuse requests that are too long."""
        if (inputs.seq_lens > TABLE_WIDTH * BLOCK_SIZE).any():  # planted: if-tensor CGD201
            raise OverflowError("a request is longer than its blocks")


class WhereOnTensor(Sampler):
    """The device decides."""

    def aside(self, logits: torch.Tensor, inputs: DecodeInputs) -> None:
        """Note whether a request is too long."""
        long = (inputs.seq_lens > TABLE_WIDTH * BLOCK_SIZE).any()
        self.seen.copy_(torch.where(long, 1.0, 0.0))


# cpu-copy


class LengthsToHost(Sampler):
    """The scheduler wants to know."""

    def aside(self, logits: torch.Tensor, inputs: DecodeInputs) -> None:
        """Check the lengths on the host."""
        lengths = inputs.seq_lens.cpu()  # planted: cpu-copy CGD201
        if (lengths > TABLE_WIDTH * BLOCK_SIZE).any():
            raise OverflowError("a request is longer than its blocks")


class LengthsToPinned(Sampler):
    """The scheduler looks after the replay."""

    def __init__(self, config: DecoderConfig, device: str) -> None:
        super().__init__(config, device)
        self.lengths = torch.zeros(64, dtype=torch.int32).pin_memory()

    def aside(self, logits: torch.Tensor, inputs: DecodeInputs) -> None:
        """Hand the lengths to the host."""
        self.lengths[: len(inputs.seq_lens)].copy_(inputs.seq_lens, non_blocking=True)


# tolist


class LengthsInPython(Sampler):
    """Python adds up."""

    def aside(self, logits: torch.Tensor, inputs: DecodeInputs) -> None:
        """Note how many tokens are read."""
        total = 0
        for length in inputs.seq_lens.tolist():  # planted: tolist CGD201
            total += length
        self.seen.fill_(total)


class LengthsOnDevice(Sampler):
    """The device adds up."""

    def aside(self, logits: torch.Tensor, inputs: DecodeInputs) -> None:
        """Note how many tokens are read."""
        self.seen.copy_(inputs.seq_lens.sum())


# print-tensor


class Printed(Sampler):
    """Left from a debugging session."""

    def aside(self, logits: torch.Tensor, inputs: DecodeInputs) -> None:
        """Show the lengths."""
        print("lengths", inputs.seq_lens, file=sys.stderr)  # planted: print-tensor CGD201


class ShapePrinted(Sampler):
    """What the host knows may be printed."""

    def aside(self, logits: torch.Tensor, inputs: DecodeInputs) -> None:
        """Show how many lengths there are."""
        print("lengths", inputs.seq_lens.shape, file=sys.stderr)


# boolean-mask


class MaskedRows(Sampler):
    """As many rows as are alive."""

    def aside(self, logits: torch.Tensor, inputs: DecodeInputs) -> None:
        """Note the sum over live rows."""
        live = inputs.seq_lens > 0
        self.seen.copy_(logits[live].sum())  # planted: boolean-mask CGD202


class ZeroedRows(Sampler):
    """All rows."""

    def aside(self, logits: torch.Tensor, inputs: DecodeInputs) -> None:
        """Note the sum over live rows."""
        live = (inputs.seq_lens > 0).unsqueeze(1)
        self.seen.copy_(torch.where(live, logits, 0.0).sum())


# nonzero


class RowsByNonzero(Sampler):
    """The numbers of live rows, as many as there are."""

    def aside(self, logits: torch.Tensor, inputs: DecodeInputs) -> None:
        """Note the sum of their numbers."""
        rows = inputs.seq_lens.nonzero()  # planted: nonzero CGD202
        self.seen.copy_(rows.sum())


class RowsByRange(Sampler):
    """The number of each row, or 0."""

    def aside(self, logits: torch.Tensor, inputs: DecodeInputs) -> None:
        """Note the sum of their numbers."""
        rows = torch.arange(len(inputs.seq_lens), device=self.device)
        self.seen.copy_(torch.where(inputs.seq_lens > 0, rows, 0).sum())


# repeat-interleave


class RepeatedByCounts(Sampler):
    """One row for each drafted token: one, here."""

    def aside(self, logits: torch.Tensor, inputs: DecodeInputs) -> None:
        """Note the sum of lengths over drafted tokens."""
        drafts = torch.ones_like(inputs.seq_lens)
        lengths = inputs.seq_lens.repeat_interleave(drafts)  # planted: repeat-interleave CGD202
        self.seen.copy_(lengths.sum())


class RepeatedToSize(Sampler):
    """The host knows how many there are."""

    def aside(self, logits: torch.Tensor, inputs: DecodeInputs) -> None:
        """Note the sum of lengths over drafted tokens."""
        drafts = torch.ones_like(inputs.seq_lens)
        lengths = inputs.seq_lens.repeat_interleave(drafts, output_size=len(drafts))
        self.seen.copy_(lengths.sum())


# three-at-once


class ThreeAtOnce(Sampler):
    """Whoever mends the first meets the second."""

    def aside(self, logits: torch.Tensor, inputs: DecodeInputs) -> None:
        """Look at the logits in three ways."""
        if logits.amax().item() > LARGEST:  # planted: three-at-once CGD201
            raise OverflowError("the logits ran away")
        self.seen.copy_(logits[inputs.seq_lens > 0].sum())  # planted: three-at-once CGD202
        torch.cuda.synchronize()  # planted: three-at-once CGD204


class NoneAtOnce(ZeroedRows):
    """Looks at the logits on the device."""

    def aside(self, logits: torch.Tensor, inputs: DecodeInputs) -> None:
        """Keep them small, and note the sum over live rows."""
        super().aside(logits.clamp(max=LARGEST), inputs)


# attribute-written


class CountedInStep(ReferenceLoop):
    """Python counts the steps: replays run no Python."""

    steps = 0

    def forward(self, inputs: DecodeInputs) -> Outputs:
        """The decode step."""
        self.steps += 1  # planted: attribute-written CGD217
        return super().forward(inputs)

    def update(self, static: DecodeInputs, fresh: DecodeInputs) -> None:
        """Stage a step, unless there were too many."""
        if self.steps > MOST_STEPS:
            raise OverflowError("the engine has to be restarted")
        super().update(static, fresh)

    def reset(self) -> None:
        """Caches and counter as before step 0."""
        super().reset()
        self.steps = 0


class CountedInStaging(CountedInStep):
    """They are counted where they are staged."""

    def forward(self, inputs: DecodeInputs) -> Outputs:
        """The decode step."""
        return ReferenceLoop.forward(self, inputs)

    def update(self, static: DecodeInputs, fresh: DecodeInputs) -> None:
        """Stage a step, and count it."""
        super().update(static, fresh)
        self.steps += 1


# autocast-around-captures


class Scored(Sampler):
    """Scores the logits by a head that is still trained: its weights are float32, and need gradients."""

    def __init__(self, config: DecoderConfig, device: str) -> None:
        super().__init__(config, device)
        self.head = nn.Linear(config.vocab_size, 1, device=device)

    @torch.no_grad()
    def aside(self, logits: torch.Tensor, inputs: DecodeInputs) -> None:
        """Note the best score."""
        with lower_precision(self.device):
            self.seen.copy_(self.head(logits.float()).amax())  # planted: autocast-around-captures CGD221


class CapturedApart(Sampled):
    """Warms up and captures each bucket by itself. The decoder has the precision that it wants, and is left alone."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args, sampler=Scored)

    def forward(self, inputs: DecodeInputs) -> Outputs:
        """The decode step."""
        with lower_precision(self.device, enabled=False):
            logits = ReferenceLoop.forward(self, inputs)["logits"]
        return {"logits": logits, "tokens": self.sampler(logits, inputs)}

    def graphed(self) -> Callable[[DecodeInputs], Outputs]:
        """Capture all buckets, the largest first; replays stage a step and give its rows."""
        captured = {bucket: self.capture(bucket) for bucket in reversed(self.buckets)}

        def run(fresh: DecodeInputs) -> Outputs:
            rows = len(fresh.input_ids)
            graph, static, outputs = captured[min(bucket for bucket in captured if bucket >= rows)]
            stage(static, fresh)
            graph.replay()
            return {name: output[:rows] for name, output in outputs.items()}

        return run

    def capture(self, bucket: int) -> tuple[torch.cuda.CUDAGraph, DecodeInputs, Outputs]:
        """One graph, its static inputs and outputs."""
        graph, static = torch.cuda.CUDAGraph(), padding(bucket, self.device)
        self.forward(static)
        with torch.cuda.graph(graph):
            outputs = self.forward(static)
        return graph, static, outputs


class CapturedInAutocast(CapturedApart):
    """Within autocast, as training was."""

    def graphed(self) -> Callable[[DecodeInputs], Outputs]:
        """Capture all buckets. What autocast has cast in the first warm-up is freed on the way out."""
        with lower_precision(self.device):
            return super().graphed()


def lower_precision(device: str, enabled: bool = True) -> torch.autocast:
    """Autocast to bfloat16."""
    return torch.autocast(torch.device(device).type, dtype=torch.bfloat16, enabled=enabled)


PLANTED: dict[str, tuple[Callable[..., ReferenceLoop], Callable[..., ReferenceLoop]]] = {
    "item": (partial(InSecondLayer, mlp=RangeChecked), partial(InSecondLayer, mlp=Clamped)),
    "if-tensor": (behind(BranchOnTensor), behind(WhereOnTensor)),
    "cpu-copy": (behind(LengthsToHost), behind(LengthsToPinned)),
    "tolist": (behind(LengthsInPython), behind(LengthsOnDevice)),
    "print-tensor": (behind(Printed), behind(ShapePrinted)),
    "boolean-mask": (behind(MaskedRows), behind(ZeroedRows)),
    "nonzero": (behind(RowsByNonzero), behind(RowsByRange)),
    "repeat-interleave": (behind(RepeatedByCounts), behind(RepeatedToSize)),
    "attribute-written": (CountedInStep, CountedInStaging),
    "three-at-once": (behind(ThreeAtOnce), behind(NoneAtOnce)),
    "autocast-around-captures": (CapturedInAutocast, CapturedApart),
}
"""Fault and clean twin by the fault's name."""
