"""A table that changes every fourth step is staged only then, as its version number tells.

A careless tool sees three steps of four without a refresh and reports a frozen table. One that puts static buffers
back to an earlier state between arms, but not the version number beside them, makes the fault that it then reports.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

ENTRIES, WIDEST, EVERY = 8, 4, 4


@dataclass
class Inputs:
    """One step. `version` is a host number: what the table's content is."""

    keys: torch.Tensor
    table: torch.Tensor
    version: tuple[int, int]


class Versioned:
    """Looks keys up in the table."""

    def __init__(self, device: str, seed: int) -> None:
        self.buckets = [1, 2, WIDEST]
        self.device = device
        self.seed = seed

    def next_inputs(self, step: int, n: int) -> Inputs:
        """Keys of this step; the table of its group of steps, for `n` rows."""
        keys = torch.tensor([(step + row) % ENTRIES for row in range(n)], device=self.device)
        generator = torch.Generator().manual_seed(1000 * self.seed + step // EVERY)
        table = torch.randn(WIDEST, ENTRIES, generator=generator)[:n].to(self.device)
        return Inputs(keys, table, (step // EVERY, n))

    def static_inputs(self, bucket: int) -> Inputs:
        """Zeros, of no version."""
        keys = torch.zeros(bucket, dtype=torch.int64, device=self.device)
        return Inputs(keys, torch.zeros(bucket, ENTRIES, device=self.device), (-1, 0))

    def update(self, static: Inputs, fresh: Inputs) -> None:
        """The table only where it is another one, or was staged for fewer rows."""
        n = len(fresh.keys)
        static.keys[:n].copy_(fresh.keys)
        if static.version[0] != fresh.version[0] or static.version[1] < n:
            static.table[:n].copy_(fresh.table)
            static.version = fresh.version

    def forward(self, inputs: Inputs) -> torch.Tensor:
        """Each row's entry at its key."""
        return inputs.table.gather(1, inputs.keys[:, None])

    def reset(self) -> None:
        """No state: the buffers belong to whoever asked for them."""


def target(device: str, seed: int = 0) -> Versioned:
    """The target."""
    return Versioned(device, seed)
