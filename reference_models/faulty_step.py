"""Faults inside the step, planted into `ReferenceLoop`, each beside its clean twin (see `faults.py`)."""

from __future__ import annotations

import random
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import torch
from torch import nn

from cudagraph_doctor.reference_models import operators as ops
from cudagraph_doctor.reference_models.decode import Attention, Rotary
from cudagraph_doctor.reference_models.inputs import DecodeInputs, stage
from cudagraph_doctor.reference_models.loop import ReferenceLoop

Outputs = dict[str, torch.Tensor]
Extended = TypeVar("Extended", bound=DecodeInputs)


def extended(kind: type[Extended], inputs: DecodeInputs, **more: Any) -> Extended:
    """`inputs` as a `kind`, which has these fields and `more`."""
    return kind(**{field.name: getattr(inputs, field.name) for field in fields(DecodeInputs)}, **more)


# position-by-value

STEPS_PLANNED_AT_ONCE = 8
"""Positions are those of the first of so many steps; how far the step is from there is told apart."""


@dataclass(slots=True)
class OffsetInputs(DecodeInputs):
    """Positions, and what is to be added to them."""

    offset: Any
    """int, or (n,) int64."""


class OffsetByValue(Rotary):
    """The offset is an argument of the kernel."""

    def forward(self, qk: torch.Tensor, inputs: Any) -> None:
        """Rotate in place."""
        ops.rotary_embedding(qk, inputs.positions, self.cos_sin, inputs.offset)  # planted: position-by-value CGD320


class OffsetOnDevice(Rotary):
    """The offset is read from memory."""

    def forward(self, qk: torch.Tensor, inputs: Any) -> None:
        """Rotate in place."""
        ops.rotary_embedding(qk, inputs.positions + inputs.offset, self.cos_sin)


class PositionByValue(ReferenceLoop):
    """The step's position offset is a Python int."""

    def __init__(self, *args: Any, rotary: type[Rotary] = OffsetByValue) -> None:
        super().__init__(*args)
        for module in self.model.modules():
            if isinstance(module, Attention):
                module.rotary = rotary(self.config, self.device)

    def next_inputs(self, step: int, n: int) -> OffsetInputs:
        """The truth of step `step`."""
        inputs = super().next_inputs(step, n)
        offset = step % STEPS_PLANNED_AT_ONCE
        return extended(OffsetInputs, replace(inputs, positions=inputs.positions - offset), offset=offset)

    def static_inputs(self, bucket: int) -> OffsetInputs:
        """Padding."""
        return extended(OffsetInputs, super().static_inputs(bucket), offset=0)

    def update(self, static: Any, fresh: Any) -> None:
        """Stage a step."""
        super().update(static, fresh)
        static.offset = fresh.offset


class PositionOnDevice(PositionByValue):
    """The step's position offset is a tensor, one number a row."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args, rotary=OffsetOnDevice)

    def next_inputs(self, step: int, n: int) -> OffsetInputs:
        """The truth of step `step`."""
        inputs = super().next_inputs(step, n)
        return replace(inputs, offset=torch.full_like(inputs.positions, inputs.offset))

    def static_inputs(self, bucket: int) -> OffsetInputs:
        """Padding."""
        inputs = super().static_inputs(bucket)
        return replace(inputs, offset=torch.zeros_like(inputs.positions))

    def update(self, static: Any, fresh: Any) -> None:
        """Stage a step."""
        stage(static, fresh)
        static.offset[: len(fresh.offset)].copy_(fresh.offset)


# branch-on-length

LONG = 33
"""Logits are softened if a request is longer."""


@dataclass(slots=True)
class LengthInputs(DecodeInputs):
    """Inputs with the longest of seq_lens, as the host knows it."""

    max_seq_len: int


class BranchOnLength(ReferenceLoop):
    """Python decides which kernels are launched."""

    def next_inputs(self, step: int, n: int) -> LengthInputs:
        """The truth of step `step`."""
        inputs = super().next_inputs(step, n)
        return extended(LengthInputs, inputs, max_seq_len=int(inputs.seq_lens.max()))

    def static_inputs(self, bucket: int) -> LengthInputs:
        """Padding."""
        return extended(LengthInputs, super().static_inputs(bucket), max_seq_len=0)

    def at_capture(self, bucket: int) -> LengthInputs:
        """Graphs are captured at start-up, when all requests are short."""
        return self.next_inputs(0, bucket)

    def update(self, static: Any, fresh: Any) -> None:
        """Stage a step."""
        super().update(static, fresh)
        static.max_seq_len = fresh.max_seq_len

    def forward(self, inputs: Any) -> Outputs:
        """The decode step."""
        outputs = super().forward(inputs)
        if inputs.max_seq_len > LONG:
            outputs["logits"] = outputs["logits"] * 0.5  # planted: branch-on-length CGD323
        return outputs


class WhereOnLength(ReferenceLoop):
    """The device decides which result is taken."""

    def forward(self, inputs: DecodeInputs) -> Outputs:
        """The decode step."""
        outputs = super().forward(inputs)
        long = inputs.seq_lens.max() > LONG
        outputs["logits"] = torch.where(long, outputs["logits"] * 0.5, outputs["logits"])
        return outputs


# weights-replaced

UPDATED_IN_STEP = 3
"""The first step that runs with the second version of the weights."""


@dataclass(slots=True)
class VersionedInputs(DecodeInputs):
    """Inputs with the version of the weights that the step has to run with."""

    version: Any
    """int, or (n,) int64."""


class WeightsReplaced(ReferenceLoop):
    """A checkpoint is a dictionary of Parameters; installing one moves no bytes."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        first = self.model.lm_head.weight
        second = nn.Parameter(first * -0.5, requires_grad=False)
        self.checkpoints: list[dict[str, torch.Tensor]] = [{"lm_head.weight": first}, {"lm_head.weight": second}]

    def next_inputs(self, step: int, n: int) -> VersionedInputs:
        """The truth of step `step`."""
        return extended(VersionedInputs, super().next_inputs(step, n), version=int(step >= UPDATED_IN_STEP))

    def static_inputs(self, bucket: int) -> VersionedInputs:
        """Padding."""
        return extended(VersionedInputs, super().static_inputs(bucket), version=0)

    def at_capture(self, bucket: int) -> VersionedInputs:
        """Graphs are captured at start-up."""
        return self.next_inputs(0, bucket)

    def update(self, static: Any, fresh: Any) -> None:
        """Stage a step."""
        super().update(static, fresh)
        static.version = fresh.version

    def forward(self, inputs: Any) -> Outputs:
        """The decode step."""
        self.model.lm_head.weight = self.checkpoints[inputs.version]["lm_head.weight"]
        return super().forward(inputs)

    def reset(self) -> None:
        """Caches and weights as before step 0."""
        super().reset()
        self.model.lm_head.weight = self.checkpoints[0]["lm_head.weight"]


class WeightsUpdatedInPlace(WeightsReplaced):
    """The step copies the version that it is told into the one Parameter, choosing on the device."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.versions = torch.stack([checkpoint["lm_head.weight"] for checkpoint in self.checkpoints])

    def next_inputs(self, step: int, n: int) -> VersionedInputs:
        """The truth of step `step`."""
        inputs = super().next_inputs(step, n)
        return replace(inputs, version=torch.full_like(inputs.positions, inputs.version))

    def static_inputs(self, bucket: int) -> VersionedInputs:
        """Padding."""
        inputs = super().static_inputs(bucket)
        return replace(inputs, version=torch.zeros_like(inputs.positions))

    def update(self, static: Any, fresh: Any) -> None:
        """Stage a step."""
        stage(static, fresh)
        static.version[: len(fresh.version)].copy_(fresh.version)

    def forward(self, inputs: Any) -> Outputs:
        """The decode step."""
        self.model.lm_head.weight.copy_(self.versions.index_select(0, inputs.version[:1]).squeeze(0))
        return ReferenceLoop.forward(self, inputs)

    def reset(self) -> None:
        """Caches and weights as before step 0."""
        super().reset()
        self.model.lm_head.weight.copy_(self.versions[0])


# host-random-draw


class HostRandomDraw(ReferenceLoop):
    """Python draws."""

    def forward(self, inputs: DecodeInputs) -> Outputs:
        """The decode step."""
        outputs = super().forward(inputs)
        outputs["logits"] = outputs["logits"] * random.uniform(0.5, 2.0)  # planted: host-random-draw CGD324
        return outputs

    def reset(self) -> None:
        """Caches and seed as before step 0."""
        super().reset()
        random.seed(self.seed)


class DeviceRandomDraw(ReferenceLoop):
    """The device draws."""

    def forward(self, inputs: DecodeInputs) -> Outputs:
        """The decode step."""
        outputs = super().forward(inputs)
        outputs["logits"] = outputs["logits"] * (0.5 + torch.rand(1, device=self.device, dtype=torch.float32))
        return outputs

    def reset(self) -> None:
        """Caches and seed as before step 0."""
        super().reset()
        torch.manual_seed(self.seed)


PLANTED: dict[str, tuple[type[ReferenceLoop], type[ReferenceLoop]]] = {
    "position-by-value": (PositionByValue, PositionOnDevice),
    "branch-on-length": (BranchOnLength, WhereOnLength),
    "weights-replaced": (WeightsReplaced, WeightsUpdatedInPlace),
    "host-random-draw": (HostRandomDraw, DeviceRandomDraw),
}
"""Fault and clean twin by the fault's name."""
