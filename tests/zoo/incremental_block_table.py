"""The block table lives on the device and is appended to: one element at each block boundary, nothing else is copied.

A careless tool that expects the whole table to be staged each step reports a frozen input; one that runs a step in
isolation, without the steps before it, sees a table with holes. From `reset()` on, step by step, it is sound.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from .paged import BLOCK, BLOCKS, LENGTH, ROWS, VOCAB, Batch
from .paged_engine import PagedEngine


class AppendingEngine(PagedEngine):
    """Eager and graph steps read the same device table; slot_mapping and lengths are made fresh each step."""

    def __init__(self, device: str, seed: int) -> None:
        self.table = torch.zeros(ROWS, BLOCKS, dtype=torch.int64, device=device)
        self.done = [0] * ROWS
        super().__init__(device, seed)

    def static_batch(self) -> Batch:
        """The device table itself is a static input."""
        return replace(super().static_batch(), block_table=self.table)

    def reset(self) -> None:
        """No request has a token or a block yet."""
        super().reset()
        self.table.zero_()
        self.done = [0] * ROWS

    def step(self, i: int, n: int) -> dict[str, torch.Tensor]:
        """Every row of the batch gets one token further; requests that are full start anew."""
        positions, slots = [], []
        for row in range(n):
            at = self.done[row] % LENGTH
            if at % BLOCK == 0:
                self.table[row, at // BLOCK] = row * BLOCKS + at // BLOCK
            positions.append(at)
            slots.append(row * LENGTH + at)
            self.done[row] += 1
        columns = [[(3 * at + 7 * row + 1) % VOCAB for row, at in enumerate(positions)], positions, slots]
        tokens, at_, slot_mapping = (torch.tensor(column, device=self.device) for column in columns)
        return self.run(Batch(tokens, at_, slot_mapping, self.table[:n], at_ + 1))


def target(device: str, seed: int = 0) -> AppendingEngine:
    """The target."""
    return AppendingEngine(device, seed)
