"""Buffers that a graph reads and nobody keeps right, planted into `ReferenceLoop` (see `input_faults.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from cudagraph_doctor.reference_models.faulty_staging import stage_all_but
from cudagraph_doctor.reference_models.faulty_step import WeightsReplaced, WeightsUpdatedInPlace, extended
from cudagraph_doctor.reference_models.inputs import DecodeInputs, padding, stage
from cudagraph_doctor.reference_models.loop import ReferenceLoop
from cudagraph_doctor.reference_models.requests import MAX_ROWS

Outputs = dict[str, torch.Tensor]


# index-read-from-tail


@dataclass(slots=True)
class IndexedInputs(DecodeInputs):
    """Inputs, and the row of the output that each request's result goes to."""

    out_rows: torch.Tensor
    """(n,) int64; static: (MAX_ROWS,)."""


class IndexReadFromTail(ReferenceLoop):
    """The index buffer is as long as the largest batch; it is filled at its front, and the step reads its end."""

    def next_inputs(self, step: int, n: int) -> IndexedInputs:
        """The truth of step `step`: results go back in another order."""
        rows = torch.arange(n, device=self.device).roll(step)
        return extended(IndexedInputs, super().next_inputs(step, n), out_rows=rows)

    def static_inputs(self, bucket: int) -> IndexedInputs:
        """Padding, to rows of its own."""
        return extended(
            IndexedInputs, super().static_inputs(bucket), out_rows=torch.arange(MAX_ROWS, device=self.device) % bucket
        )

    def update(self, static: Any, fresh: Any) -> None:
        """Stage a step."""
        stage(static, fresh)
        live, bucket = len(fresh.out_rows), len(static.input_ids)
        static.out_rows[:live].copy_(fresh.out_rows)
        static.out_rows[live:bucket].copy_(torch.arange(live, bucket, device=self.device))

    def index(self, inputs: Any) -> torch.Tensor:
        """The part of the index buffer that is the batch's."""
        rows: torch.Tensor = inputs.out_rows[-len(inputs.input_ids) :]
        return rows

    def forward(self, inputs: Any) -> Outputs:
        """The decode step."""
        return {name: output.index_select(0, self.index(inputs)) for name, output in super().forward(inputs).items()}


class IndexReadFromFront(IndexReadFromTail):
    """It is read where it is filled; its end is stale, which nobody sees."""

    def index(self, inputs: Any) -> torch.Tensor:
        """The part of the index buffer that is the batch's."""
        rows: torch.Tensor = inputs.out_rows[: len(inputs.input_ids)]
        return rows


# padding-temperature-zero


@dataclass(slots=True)
class SampledInputs(DecodeInputs):
    """Inputs with each request's temperature."""

    temperature: torch.Tensor
    """(n,) float32."""


class PaddingTemperatureZero(ReferenceLoop):
    """The mean confidence of the batch is fed back; a padding row counts for nothing, but 0 * NaN is NaN."""

    padding_temperature = 0.0

    def next_inputs(self, step: int, n: int) -> SampledInputs:
        """The truth of step `step`."""
        inputs = super().next_inputs(step, n)
        return extended(SampledInputs, inputs, temperature=0.5 + 0.125 * (inputs.positions % 4).float())

    def static_inputs(self, bucket: int) -> SampledInputs:
        """Padding."""
        temperature = torch.full((bucket,), self.padding_temperature, device=self.device)
        return extended(SampledInputs, super().static_inputs(bucket), temperature=temperature)

    def update(self, static: Any, fresh: Any) -> None:
        """Stage a step."""
        stage(static, fresh)
        static.temperature.fill_(self.padding_temperature)
        static.temperature[: len(fresh.temperature)].copy_(fresh.temperature)

    def forward(self, inputs: Any) -> Outputs:
        """The decode step."""
        logits = super().forward(inputs)["logits"].float() / inputs.temperature.unsqueeze(1)
        live = (inputs.seq_lens > 0).float()
        confidence = (live * logits.softmax(dim=-1).amax(dim=-1)).sum() / live.sum()
        logits = logits * confidence
        return {"logits": logits, "tokens": logits.argmax(dim=-1)}


class PaddingTemperatureOne(PaddingTemperatureZero):
    """Padding rows have a temperature that one can divide by."""

    padding_temperature = 1.0


# scale-and-shift-swapped


@dataclass(slots=True)
class ScaledInputs(DecodeInputs):
    """Inputs with what each request's logits are scaled and shifted by."""

    scale: torch.Tensor
    """(n,) float32."""
    shift: torch.Tensor
    """(n,) float32."""


class ScaleAndShiftSwapped(ReferenceLoop):
    """Each is staged into the other's buffer."""

    def next_inputs(self, step: int, n: int) -> ScaledInputs:
        """The truth of step `step`."""
        inputs = super().next_inputs(step, n)
        position = inputs.positions.float()
        return extended(ScaledInputs, inputs, scale=1.0 + position % 4, shift=0.25 * position)

    def static_inputs(self, bucket: int) -> ScaledInputs:
        """Padding."""
        zeros = [torch.zeros(bucket, device=self.device) for _ in range(2)]
        return extended(ScaledInputs, super().static_inputs(bucket), scale=zeros[0], shift=zeros[1])

    def update(self, static: Any, fresh: Any) -> None:
        """Stage a step."""
        stage(static, fresh)
        n = len(fresh.scale)
        static.scale[:n].copy_(fresh.shift)
        static.shift[:n].copy_(fresh.scale)

    def forward(self, inputs: Any) -> Outputs:
        """The decode step."""
        outputs = super().forward(inputs)
        return {**outputs, "logits": outputs["logits"] * inputs.scale.unsqueeze(1) + inputs.shift.unsqueeze(1)}


class ScaleAndShiftStaged(ScaleAndShiftSwapped):
    """Each is staged into its own."""

    def update(self, static: Any, fresh: Any) -> None:
        """Stage a step."""
        stage(static, fresh)
        n = len(fresh.scale)
        static.scale[:n].copy_(fresh.scale)
        static.shift[:n].copy_(fresh.shift)


# optional-input-skipped


@dataclass(slots=True)
class ImageInputs(DecodeInputs):
    """Inputs with what an image in the prompt moves the positions by."""

    shift: torch.Tensor | None
    """(n,) int64, None if no request has an image."""


class OptionalInputSkipped(ReferenceLoop):
    """Every other step has requests with images. A step without them leaves the shift of the one before."""

    def next_inputs(self, step: int, n: int) -> ImageInputs:
        """The truth of step `step`."""
        inputs = super().next_inputs(step, n)
        return extended(ImageInputs, inputs, shift=-(inputs.positions // 2) if step % 2 == 0 else None)

    def static_inputs(self, bucket: int) -> ImageInputs:
        """Padding."""
        inputs = super().static_inputs(bucket)
        return extended(ImageInputs, inputs, shift=torch.zeros_like(inputs.positions))

    def at_capture(self, bucket: int) -> ImageInputs:
        """Graphs are captured with images, so that they can be served."""
        return self.next_inputs(0, bucket)

    def update(self, static: Any, fresh: Any) -> None:
        """Stage a step."""
        stage(static, fresh)
        if fresh.shift is not None:
            static.shift[: len(fresh.shift)].copy_(fresh.shift)

    def forward(self, inputs: Any) -> Outputs:
        """The decode step."""
        positions = inputs.positions if inputs.shift is None else (inputs.positions + inputs.shift).clamp(min=0)
        return super().forward(
            DecodeInputs(inputs.input_ids, positions, inputs.slot_mapping, inputs.block_table, inputs.seq_lens)
        )


class OptionalInputZeroed(OptionalInputSkipped):
    """No image: no shift."""

    def update(self, static: Any, fresh: Any) -> None:
        """Stage a step."""
        static.shift.zero_()
        super().update(static, fresh)


# two-staging-paths


class TwoStagingPaths(ReferenceLoop):
    """A full batch needs no padding: a fast path hands out the runner's own tensors. Graphs saw the other path."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.own = padding(MAX_ROWS, self.device)

    def at_capture(self, bucket: int) -> DecodeInputs:
        """Graphs are captured with a dummy batch of one row."""
        return self.next_inputs(0, 1)

    def update(self, static: Any, fresh: Any) -> None:
        """Stage a step."""
        rows = len(fresh.slot_mapping)
        if rows == 1 or rows < len(static.slot_mapping):
            stage(static, fresh)
            return
        stage_all_but("slot_mapping", static, fresh)
        self.own.slot_mapping[:rows].copy_(fresh.slot_mapping)
        self.hand_out(static, self.own.slot_mapping[:rows])

    def hand_out(self, static: Any, slot_mapping: torch.Tensor) -> None:
        """Let the step have the runner's tensor."""
        static.slot_mapping = slot_mapping


class OneBufferForBothPaths(TwoStagingPaths):
    """Both paths end in the buffer that was captured."""

    def hand_out(self, static: Any, slot_mapping: torch.Tensor) -> None:
        """Copy the runner's tensor."""
        static.slot_mapping.copy_(slot_mapping)


# derived-weights-replaced


class TransposedHead(nn.Module):
    """The head with its weight laid out for another matrix product: derived, no parameter."""

    transposed: torch.Tensor

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.weight = weight
        self.register_buffer("transposed", weight.T.contiguous(), persistent=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """(n, hidden) -> (n, vocab)."""
        return hidden @ self.transposed


class DerivedWeightsReplaced(WeightsReplaced):
    """After a weight update the head is laid out again: into a new tensor."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.derived = [checkpoint["lm_head.weight"].T.contiguous() for checkpoint in self.checkpoints]
        self.head = TransposedHead(self.model.lm_head.weight)
        self.model.lm_head = self.head  # type: ignore[assignment]

    def forward(self, inputs: Any) -> Outputs:
        """The decode step."""
        self.head.transposed = self.derived[inputs.version]
        return super().forward(inputs)

    def reset(self) -> None:
        """Caches and weights as before step 0."""
        super().reset()
        self.head.transposed = self.derived[0]


class DerivedWeightsInPlace(WeightsUpdatedInPlace):
    """Into the tensor that is there."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.derived = self.versions.mT.contiguous()
        self.head = TransposedHead(self.model.lm_head.weight)
        self.model.lm_head = self.head  # type: ignore[assignment]

    def forward(self, inputs: Any) -> Outputs:
        """The decode step."""
        self.head.transposed.copy_(self.derived.index_select(0, inputs.version[:1]).squeeze(0))
        return super().forward(inputs)

    def reset(self) -> None:
        """Caches and weights as before step 0."""
        super().reset()
        self.head.transposed.copy_(self.derived[0])


# workspace-uninitialised


class WorkspaceUninitialised(ReferenceLoop):
    """Shares of the rows in a statistic are written for live rows; those of padding rows are what was there before."""

    def workspace(self, inputs: DecodeInputs) -> torch.Tensor:
        """(n,) float32."""
        return torch.empty(len(inputs.seq_lens), device=self.device)

    def forward(self, inputs: DecodeInputs) -> Outputs:
        """The decode step."""
        logits = super().forward(inputs)["logits"].float()
        shares = self.workspace(inputs)
        shares.masked_fill_(inputs.seq_lens > 0, 1.0)
        logits = logits + (shares * logits.amax(dim=-1)).sum() / MAX_ROWS
        return {"logits": logits, "tokens": logits.argmax(dim=-1)}


class WorkspaceZeroed(WorkspaceUninitialised):
    """A padding row has no share."""

    def workspace(self, inputs: DecodeInputs) -> torch.Tensor:
        """(n,) float32."""
        return torch.zeros(len(inputs.seq_lens), device=self.device)


PLANTED: dict[str, tuple[type[ReferenceLoop], type[ReferenceLoop]]] = {
    "index-read-from-tail": (IndexReadFromTail, IndexReadFromFront),
    "padding-temperature-zero": (PaddingTemperatureZero, PaddingTemperatureOne),
    "scale-and-shift-swapped": (ScaleAndShiftSwapped, ScaleAndShiftStaged),
    "optional-input-skipped": (OptionalInputSkipped, OptionalInputZeroed),
    "two-staging-paths": (TwoStagingPaths, OneBufferForBothPaths),
    "derived-weights-replaced": (DerivedWeightsReplaced, DerivedWeightsInPlace),
    "workspace-uninitialised": (WorkspaceUninitialised, WorkspaceZeroed),
}
"""Fault and clean twin by the fault's name."""
