"""Faults in how a step is staged, planted into `ReferenceLoop`, each beside its clean twin (see `faults.py`)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.nn.functional import pad

from cudagraph_doctor.reference_models.inputs import PADDING, DecodeInputs, copy_input, padding, stage
from cudagraph_doctor.reference_models.loop import ReferenceLoop
from cudagraph_doctor.reference_models.requests import BLOCK_SIZE

Outputs = dict[str, torch.Tensor]


def stage_all_but(name: str, static: DecodeInputs, fresh: DecodeInputs) -> None:
    """Stage a step without one of its inputs."""
    for other in PADDING:
        if other != name:
            copy_input(other, static, fresh)


# slot-mapping-not-copied


class SlotMappingNotCopied(ReferenceLoop):
    """The line for slot_mapping was forgotten."""

    def update(self, static: DecodeInputs, fresh: DecodeInputs) -> None:
        """Stage a step."""
        stage_all_but("slot_mapping", static, fresh)


class SlotMappingByCat(ReferenceLoop):
    """slot_mapping is written by another operator, to the same address."""

    def update(self, static: DecodeInputs, fresh: DecodeInputs) -> None:
        """Stage a step."""
        stage_all_but("slot_mapping", static, fresh)
        tail = static.slot_mapping.new_full((len(static.slot_mapping) - len(fresh.slot_mapping),), -1)
        torch.cat((fresh.slot_mapping, tail), out=static.slot_mapping)


# seq-lens-rebound


class SeqLensRebound(ReferenceLoop):
    """An assignment where a copy was meant."""

    def update(self, static: DecodeInputs, fresh: DecodeInputs) -> None:
        """Stage a step."""
        stage_all_but("seq_lens", static, fresh)
        static.seq_lens = pad(fresh.seq_lens, (0, len(static.seq_lens) - len(fresh.seq_lens)))


class SeqLensAssignedInPlace(ReferenceLoop):
    """The same line, with [:]."""

    def update(self, static: DecodeInputs, fresh: DecodeInputs) -> None:
        """Stage a step."""
        stage_all_but("seq_lens", static, fresh)
        static.seq_lens[:] = pad(fresh.seq_lens, (0, len(static.seq_lens) - len(fresh.seq_lens)))


# padding-writes-slot-0


class PaddingWritesSlotZero(ReferenceLoop):
    """Padding rows write to slot 0."""

    def update(self, static: DecodeInputs, fresh: DecodeInputs) -> None:
        """Stage a step."""
        super().update(static, fresh)
        static.slot_mapping[len(fresh.slot_mapping) :].zero_()


class PaddingWritesReservedSlots(ReferenceLoop):
    """Padding rows write to the block that no request is given."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.reserved_block = self.config.num_blocks - 1
        first = self.reserved_block * BLOCK_SIZE
        self.reserved_slots = torch.arange(first, first + BLOCK_SIZE, dtype=torch.int32, device=self.device)

    def update(self, static: DecodeInputs, fresh: DecodeInputs) -> None:
        """Stage a step."""
        super().update(static, fresh)
        tail = static.slot_mapping[len(fresh.slot_mapping) :]
        tail.copy_(self.reserved_slots[: len(tail)])

    def reserved(self) -> dict[str, list[int]]:
        """Blocks that padding may write, in each cache."""
        return {name: [self.reserved_block] for name in self.state()}


# block-table-first-column


class BlockTableFirstColumn(ReferenceLoop):
    """Enough as long as no request has a second block."""

    def update(self, static: DecodeInputs, fresh: DecodeInputs) -> None:
        """Stage a step."""
        stage_all_but("block_table", static, fresh)
        static.block_table[: len(fresh.block_table), :1].copy_(fresh.block_table[:, :1])


class BlockTableColumnsInUse(ReferenceLoop):
    """Columns that no request needs keep what they had."""

    def update(self, static: DecodeInputs, fresh: DecodeInputs) -> None:
        """Stage a step."""
        stage_all_but("block_table", static, fresh)
        rows, columns = fresh.block_table.shape
        static.block_table[:rows, :columns].copy_(fresh.block_table)


# stale-seq-lens-tail


class StaleSeqLensTail(ReferenceLoop):
    """The step finds the write slot itself; a row without tokens writes nothing, but who tells it that it has none?"""

    def update(self, static: DecodeInputs, fresh: DecodeInputs) -> None:
        """Stage a step."""
        copy_input("input_ids", static, fresh)
        copy_input("positions", static, fresh)
        rows, columns = fresh.block_table.shape
        static.block_table[:rows, :columns].copy_(fresh.block_table)
        static.seq_lens[:rows].copy_(fresh.seq_lens)

    def forward(self, inputs: DecodeInputs) -> Outputs:
        """The decode step."""
        last = (inputs.seq_lens - 1).clamp(min=0)
        blocks = inputs.block_table.gather(1, (last // BLOCK_SIZE).long().unsqueeze(1)).squeeze(1)
        slots = torch.where(inputs.seq_lens > 0, blocks * BLOCK_SIZE + last % BLOCK_SIZE, -1)
        return super().forward(replace(inputs, slot_mapping=slots.int()))


class StaleBlockTableTail(StaleSeqLensTail):
    """Rows that are no longer there have length 0, so that their blocks do not matter."""

    def update(self, static: DecodeInputs, fresh: DecodeInputs) -> None:
        """Stage a step."""
        super().update(static, fresh)
        static.seq_lens[len(fresh.seq_lens) :].zero_()


# metadata-recreated


@dataclass(slots=True)
class AttentionMetadata:
    """What attention needs to know of a step."""

    slot_mapping: torch.Tensor
    block_table: torch.Tensor
    seq_lens: torch.Tensor


@dataclass(slots=True)
class MetadataInputs:
    """Inputs with the attention's part in an object of its own."""

    input_ids: torch.Tensor
    positions: torch.Tensor
    metadata: AttentionMetadata


def nested(inputs: DecodeInputs) -> MetadataInputs:
    """The same tensors, the attention's part apart."""
    metadata = AttentionMetadata(inputs.slot_mapping, inputs.block_table, inputs.seq_lens)
    return MetadataInputs(inputs.input_ids, inputs.positions, metadata)


def flat(inputs: MetadataInputs) -> DecodeInputs:
    """Inverse of `nested`: the same tensors."""
    metadata = inputs.metadata
    return DecodeInputs(
        inputs.input_ids, inputs.positions, metadata.slot_mapping, metadata.block_table, metadata.seq_lens
    )


class MetadataRefreshed(ReferenceLoop):
    """The captured metadata's tensors are refreshed. This is the twin; the fault changes its `update`."""

    def next_inputs(self, step: int, n: int) -> Any:
        """The truth of step `step`."""
        return nested(super().next_inputs(step, n))

    def static_inputs(self, bucket: int) -> Any:
        """Padding."""
        return nested(super().static_inputs(bucket))

    def update(self, static: Any, fresh: Any) -> None:
        """Stage a step."""
        stage(flat(static), flat(fresh))

    def forward(self, inputs: Any) -> Outputs:
        """The decode step."""
        return super().forward(flat(inputs))


class MetadataRecreated(MetadataRefreshed):
    """A new metadata object each step."""

    def update(self, static: Any, fresh: Any) -> None:
        """Stage a step."""
        built = padding(len(static.input_ids), self.device)
        stage(built, flat(fresh))
        static.metadata = nested(built).metadata
        static.input_ids.copy_(built.input_ids)
        static.positions.copy_(built.positions)


PLANTED: dict[str, tuple[type[ReferenceLoop], type[ReferenceLoop]]] = {
    "slot-mapping-not-copied": (SlotMappingNotCopied, SlotMappingByCat),
    "seq-lens-rebound": (SeqLensRebound, SeqLensAssignedInPlace),
    "padding-writes-slot-0": (PaddingWritesSlotZero, PaddingWritesReservedSlots),
    "block-table-first-column": (BlockTableFirstColumn, BlockTableColumnsInUse),
    "stale-seq-lens-tail": (StaleSeqLensTail, StaleBlockTableTail),
    "metadata-recreated": (MetadataRecreated, MetadataRefreshed),
}
"""Fault and clean twin by the fault's name."""
