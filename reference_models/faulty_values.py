"""Numbers of the host's that a capture freezes, planted into `ReferenceLoop` (see `input_faults.py`)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from cudagraph_doctor.reference_models import by_value
from cudagraph_doctor.reference_models.faulty_step import extended
from cudagraph_doctor.reference_models.inputs import TABLE_WIDTH, DecodeInputs, stage
from cudagraph_doctor.reference_models.loop import ReferenceLoop
from cudagraph_doctor.reference_models.requests import BLOCK_SIZE, MAX_ROWS

Outputs = dict[str, torch.Tensor]


@dataclass(slots=True)
class ValuedInputs(DecodeInputs):
    """Inputs with one more number, which is the same for all rows."""

    value: Any
    """float or int, or (1,) float32."""


class WithValue(ReferenceLoop):
    """A step with a number that the host knows."""

    def true_value(self, inputs: DecodeInputs, step: int) -> Any:
        """The number of a step."""
        return 1.0 + step % 7 / 8

    def next_inputs(self, step: int, n: int) -> ValuedInputs:
        """The truth of step `step`."""
        inputs = super().next_inputs(step, n)
        return extended(ValuedInputs, inputs, value=self.true_value(inputs, step))

    def static_inputs(self, bucket: int) -> ValuedInputs:
        """Padding."""
        inputs = super().static_inputs(bucket)
        return extended(ValuedInputs, inputs, value=self.true_value(inputs, 0))

    def at_capture(self, bucket: int) -> ValuedInputs:
        """Graphs are captured with a dummy batch of one row, at start-up."""
        return self.next_inputs(0, 1)

    def update(self, static: Any, fresh: Any) -> None:
        """Stage a step."""
        stage(static, fresh)
        static.value = fresh.value


class OnDevice(WithValue):
    """The number is in memory, and staged as all else is."""

    def next_inputs(self, step: int, n: int) -> ValuedInputs:
        """The truth of step `step`."""
        inputs = super().next_inputs(step, n)
        return replace(inputs, value=torch.full((1,), float(inputs.value), device=self.device))

    def static_inputs(self, bucket: int) -> ValuedInputs:
        """Padding."""
        inputs = super().static_inputs(bucket)
        return replace(inputs, value=torch.full((1,), float(inputs.value), device=self.device))

    def update(self, static: Any, fresh: Any) -> None:
        """Stage a step."""
        stage(static, fresh)
        static.value.copy_(fresh.value)


# temperature-by-value


class TemperatureByValue(WithValue):
    """torch's kernel is given the inverse of the temperature."""

    def forward(self, inputs: Any) -> Outputs:
        """The decode step."""
        outputs = super().forward(inputs)
        outputs["logits"] = outputs["logits"].float() * inputs.value  # planted: temperature-by-value CGD320
        return outputs


class TemperatureOnDevice(OnDevice):
    """It reads it from memory."""

    def forward(self, inputs: Any) -> Outputs:
        """The decode step."""
        outputs = super().forward(inputs)
        outputs["logits"] = outputs["logits"].float() * inputs.value
        return outputs


# triton-scale-by-value


class TritonScaleByValue(WithValue):
    """A Triton kernel is given the scale."""

    def forward(self, inputs: Any) -> Outputs:
        """The decode step."""
        outputs = super().forward(inputs)
        logits = outputs["logits"]
        outputs["logits"] = by_value.scale_rows(logits, inputs.value)  # planted: triton-scale-by-value CGD320
        return outputs


class TritonScaleOfOne(OnDevice):
    """The kernel's own scale stays what it was at the capture; the step's is applied from memory."""

    def forward(self, inputs: Any) -> Outputs:
        """The decode step."""
        outputs = super().forward(inputs)
        outputs["logits"] = by_value.scale_rows(outputs["logits"], 1.0) * inputs.value.to(outputs["logits"].dtype)
        return outputs


# max-seqlen-by-value


class MaxSeqlenByValue(WithValue):
    """Attention is told the longest sequence, and looks no further than that."""

    def true_value(self, inputs: DecodeInputs, step: int) -> int:
        """max_seqlen."""
        return max(1, int(inputs.seq_lens.max()))

    def forward(self, inputs: Any) -> Outputs:
        """The decode step."""
        blocks = -(-inputs.value // BLOCK_SIZE)
        return super().forward(replace(inputs, block_table=inputs.block_table[:, :blocks]))


class MaxSeqlenOfAll(MaxSeqlenByValue):
    """It is told the longest that there can be."""

    def true_value(self, inputs: DecodeInputs, step: int) -> int:
        """The bound."""
        return TABLE_WIDTH * BLOCK_SIZE


# quantisation-scale-by-value


class QuantisedByValue(WithValue):
    """Logits are rounded to 8 bits by a scale that calibration moves; Python holds it."""

    def true_value(self, inputs: DecodeInputs, step: int) -> float:
        """The scale of a step."""
        return 0.01 + step % 7 / 256

    def forward(self, inputs: Any) -> Outputs:
        """The decode step."""
        outputs = super().forward(inputs)
        logits = outputs["logits"].float()
        outputs["logits"] = torch.fake_quantize_per_tensor_affine(  # planted: quantisation-scale-by-value CGD320
            logits, inputs.value, 0, -128, 127
        )
        return outputs


class QuantisedOnDevice(OnDevice):
    """The scale is a tensor."""

    true_value = QuantisedByValue.true_value

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.zero_point = torch.zeros(1, dtype=torch.int32, device=self.device)

    def forward(self, inputs: Any) -> Outputs:
        """The decode step."""
        outputs = super().forward(inputs)
        logits = outputs["logits"].float()
        outputs["logits"] = torch.fake_quantize_per_tensor_affine(logits, inputs.value, self.zero_point, -128, 127)
        return outputs


# descriptor-by-value


class DescriptorByValue(WithValue):
    """A descriptor made on the host bounds the rows that are loaded: as many as are live."""

    def true_value(self, inputs: DecodeInputs, step: int) -> int:
        """How many rows the descriptor is for."""
        return len(inputs.seq_lens)

    def forward(self, inputs: Any) -> Outputs:
        """The decode step."""
        outputs = super().forward(inputs)
        outputs["logits"] = by_value.load_rows(outputs["logits"], inputs.value)  # planted: descriptor-by-value CGD321
        return outputs


class DescriptorOfBucket(DescriptorByValue):
    """It is for all rows that there can be."""

    def true_value(self, inputs: DecodeInputs, step: int) -> int:
        """How many rows the descriptor is for."""
        return MAX_ROWS


# too-few-splits


class TooFewSplits(WithValue):
    """A context is looked at in stretches, a block each; the grid has as many as the longest context needs."""

    strided = False

    def true_value(self, inputs: DecodeInputs, step: int) -> int:
        """How many splits."""
        return -(-int(inputs.seq_lens.max()) // by_value.SPLIT_TOKENS)

    def at_capture(self, bucket: int) -> ValuedInputs:
        """The dummy batch has a short context."""
        return replace(super().at_capture(bucket), value=1)

    def forward(self, inputs: Any) -> Outputs:
        """The decode step; logits are scaled by what keys would be quantised by."""
        outputs = super().forward(inputs)
        cache = self.state()["layers.0.attn.key_cache"]
        amax = by_value.key_amax(  # planted: too-few-splits CGD322
            cache, inputs.block_table, inputs.seq_lens, inputs.value, self.strided
        )
        outputs["logits"] = outputs["logits"].float() * amax.mean(dim=-1, keepdim=True)
        return outputs


class SplitsStrided(TooFewSplits):
    """Blocks go on where others have left off: any number of splits gives the same."""

    strided = True


# round-counter


class RoundCounter(ReferenceLoop):
    """A number is handed over between two parties; it counts if its round is later than the last one taken.

    Python counts the rounds, and the count goes into the kernel by value. A replay brings the round of the capture,
    again and again: as soon as that is overtaken, the number of an earlier round is returned.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.round = 0
        self.taken = torch.zeros(1, dtype=torch.int64, device=self.device)
        self.mailbox = torch.zeros(1, device=self.device)

    def is_later(self) -> torch.Tensor:
        """(1,) bool: whether this call's round is later than the last one taken."""
        self.round += 1
        return self.taken < self.round  # planted: round-counter CGD324

    def forward(self, inputs: DecodeInputs) -> Outputs:
        """The decode step."""
        logits = super().forward(inputs)["logits"].float()
        best = logits.amax(dim=-1).where(inputs.seq_lens > 0, 0.0).amax()
        self.mailbox.copy_(torch.where(self.is_later(), best, self.mailbox))
        self.taken.add_(1)
        logits = logits - self.mailbox
        return {"logits": logits, "tokens": logits.argmax(dim=-1)}

    def state(self) -> dict[str, torch.Tensor]:
        """The caches, and what is handed over."""
        return {**super().state(), "taken": self.taken, "mailbox": self.mailbox}

    def reset(self) -> None:
        """As before step 0."""
        super().reset()
        self.round = 0
        self.taken.zero_()
        self.mailbox.zero_()


class RoundOnDevice(RoundCounter):
    """The device counts."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.rounds = torch.zeros(1, dtype=torch.int64, device=self.device)

    def is_later(self) -> torch.Tensor:
        """(1,) bool: whether this call's round is later than the last one taken."""
        self.rounds.add_(1)
        return self.taken < self.rounds

    def state(self) -> dict[str, torch.Tensor]:
        """The caches, and what is handed over."""
        return {**super().state(), "rounds": self.rounds}

    def reset(self) -> None:
        """As before step 0."""
        super().reset()
        self.rounds.zero_()


# noise-reseeded


class NoiseReseeded(ReferenceLoop):
    """Staging seeds the device's generator "so that runs can be repeated": every replay draws the same."""

    def update(self, static: Any, fresh: Any) -> None:
        """Stage a step."""
        super().update(static, fresh)
        torch.manual_seed(self.seed)

    def forward(self, inputs: DecodeInputs) -> Outputs:
        """The decode step."""
        outputs = super().forward(inputs)
        outputs["logits"] = outputs["logits"].float() + torch.rand_like(outputs["logits"], dtype=torch.float32)
        return outputs

    def reset(self) -> None:
        """Caches and seed as before step 0."""
        super().reset()
        torch.manual_seed(self.seed)


class NoiseSeededOnce(NoiseReseeded):
    """Only `reset` seeds."""

    def update(self, static: Any, fresh: Any) -> None:
        """Stage a step."""
        stage(static, fresh)


PLANTED: dict[str, tuple[type[ReferenceLoop], type[ReferenceLoop]]] = {
    "temperature-by-value": (TemperatureByValue, TemperatureOnDevice),
    "triton-scale-by-value": (TritonScaleByValue, TritonScaleOfOne),
    "max-seqlen-by-value": (MaxSeqlenByValue, MaxSeqlenOfAll),
    "quantisation-scale-by-value": (QuantisedByValue, QuantisedOnDevice),
    "descriptor-by-value": (DescriptorByValue, DescriptorOfBucket),
    "too-few-splits": (TooFewSplits, SplitsStrided),
    "round-counter": (RoundCounter, RoundOnDevice),
    "noise-reseeded": (NoiseReseeded, NoiseSeededOnce),
}
"""Fault and clean twin by the fault's name."""
