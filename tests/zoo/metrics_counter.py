"""An engine with metrics: steps served and the time of the last one. `reset()` leaves them alone; no step reads them.

A careless tool finds host state that `reset()` does not restore and makes a finding of it. Harmless is a note.
"""

from __future__ import annotations

import time

import torch

from .paged_engine import PagedEngine


class MeteredEngine(PagedEngine):
    """Counts and takes the time, for a dashboard."""

    def __init__(self, device: str, seed: int) -> None:
        super().__init__(device, seed)
        self.steps_served = 0
        self.rows_served = 0
        self.last_step_at = 0.0

    def step(self, i: int, n: int) -> dict[str, torch.Tensor]:
        """Decode step `i`, metered."""
        self.steps_served += 1
        self.rows_served += n
        self.last_step_at = time.monotonic()
        return super().step(i, n)


def target(device: str, seed: int = 0) -> MeteredEngine:
    """The target."""
    return MeteredEngine(device, seed)
