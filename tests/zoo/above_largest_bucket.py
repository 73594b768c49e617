"""Batches above the largest bucket run eagerly, on purpose, and bucket sizes have a gap.

A careless tool reports that no graph was replayed, or compares such a step with the graph of the largest bucket.
"""

from __future__ import annotations

import torch

from .paged import schedule
from .paged_engine import PagedEngine


class Falling(PagedEngine):
    """Buckets 1 and 4, batches of up to 6."""

    def __init__(self, device: str, seed: int) -> None:
        super().__init__(device, seed, buckets=(1, 4))
        self.batch_sizes = [1, 3, 4, 6]

    def step(self, i: int, n: int) -> dict[str, torch.Tensor]:
        """A graph where one is wide enough."""
        batch = schedule(i, n, self.device)
        return self.run(batch) if n <= max(self.buckets) else self.decoder(batch)

    def key(self, i: int, n: int) -> str:
        """What the step runs as."""
        return next((f"bucket {bucket}" for bucket in self.buckets if bucket >= n), "eager")


def target(device: str, seed: int = 0) -> Falling:
    """The target."""
    return Falling(device, seed)
