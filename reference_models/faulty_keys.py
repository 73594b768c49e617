"""Faults that one key has, or that show when keys are switched, planted into `ReferenceLoop`, each beside its twin.

What makes them faults is measured by `audit --target`; see `key_faults.py` for the table.
"""

from __future__ import annotations

from typing import Any

import torch

from cudagraph_doctor.reference_models.inputs import DecodeInputs, copy_input, padding
from cudagraph_doctor.reference_models.loop import BUCKETS, ReferenceLoop

# key-without-positions


class KeyWithoutPositions(ReferenceLoop):
    """A special case for the largest bucket, in which a line was lost."""

    def update(self, static: DecodeInputs, fresh: DecodeInputs) -> None:
        """Stage a step."""
        kept = static.positions.clone()
        super().update(static, fresh)
        if len(kept) == max(self.buckets):
            static.positions.copy_(kept)


class KeyWithPositionsLast(ReferenceLoop):
    """The special case stages positions once more, after all others."""

    def update(self, static: DecodeInputs, fresh: DecodeInputs) -> None:
        """Stage a step."""
        super().update(static, fresh)
        if len(static.positions) == max(self.buckets):
            copy_input("positions", static, fresh)


# grown-batch-staged-in-part


class GrownBatchStagedInPart(ReferenceLoop):
    """All buckets share their buffers, and when the batch grows only the new rows of the block table are staged."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.shared = padding(max(BUCKETS), self.device)
        self.rows = 0
        """Live rows of the last batch."""

    def static_inputs(self, bucket: int) -> DecodeInputs:
        """The leading rows of the shared buffers."""
        return self.shared.rows(bucket)

    def update(self, static: DecodeInputs, fresh: DecodeInputs) -> None:
        """Stage a step."""
        kept = static.block_table[: self.already_there(fresh)].clone()
        super().update(static, fresh)
        static.block_table[: len(kept)].copy_(kept)
        self.rows = len(fresh.block_table)

    def already_there(self, fresh: DecodeInputs) -> int:
        """Leading rows that are taken as staged: but requests change places, and buckets have batches of their own."""
        return self.rows - 1 if len(fresh.block_table) > self.rows > 1 else 0


class GrownBatchStaged(GrownBatchStagedInPart):
    """All rows are staged."""

    def already_there(self, fresh: DecodeInputs) -> int:
        """None are."""
        return 0


# captured-many-times


class CapturedManyTimes(ReferenceLoop):
    """A warm-up loop around the step that the capture sees as well."""

    times = 256

    def forward(self, inputs: DecodeInputs) -> dict[str, torch.Tensor]:
        """The decode step; a step done again writes and gives the same."""
        for _ in range(self.times - 1 if torch.cuda.is_current_stream_capturing() else 0):
            super().forward(inputs)
        return super().forward(inputs)


class CapturedOnce(CapturedManyTimes):
    """It goes round once."""

    times = 1


PLANTED: dict[str, tuple[type[ReferenceLoop], type[ReferenceLoop]]] = {
    "key-without-positions": (KeyWithoutPositions, KeyWithPositionsLast),
    "grown-batch-staged-in-part": (GrownBatchStagedInPart, GrownBatchStaged),
    "captured-many-times": (CapturedManyTimes, CapturedOnce),
}
"""Fault -> (the loop with it, its twin)."""
