"""An engine whose steps depend on host counters of its own, which `reset()` puts back.

Tokens are chosen, and caches filled, by how many steps the engine has taken, not by the number that the doctor
passes. A careless tool repeats a step, restoring the device only, and compares a step with the one after it.
"""

from __future__ import annotations

from collections import Counter

import torch

from .paged import LENGTH, VOCAB, Batch, schedule
from .paged_engine import PagedEngine


class CountingEngine(PagedEngine):
    """A little scheduler: each row has its own count of tokens, in a Counter and in a list of lists."""

    def __init__(self, device: str, seed: int) -> None:
        super().__init__(device, seed)
        self.lengths: Counter[int] = Counter()
        self.history: list[list[int]] = []

    def reset(self) -> None:
        """Device and host state."""
        super().reset()
        self.lengths.clear()
        self.history = []

    def step(self, i: int, n: int) -> dict[str, torch.Tensor]:
        """The next step, whatever its number."""
        rows = []
        for row in range(n):
            rows.append(schedule(self.lengths[row], row + 1, self.device))
            self.lengths[row] = (self.lengths[row] + 1) % LENGTH
        last = self.history[-1] if self.history else []
        tokens = [(3 * (last[row] if row < len(last) else row) + len(self.history) + 1) % VOCAB for row in range(n)]
        names = ("positions", "slot_mapping", "block_table", "seq_lens")
        columns = (torch.cat([getattr(batch, name)[-1:] for batch in rows]) for name in names)
        outputs = self.run(Batch(torch.tensor(tokens, device=self.device), *columns))
        self.history.append(tokens)
        return outputs


def target(device: str, seed: int = 0) -> CountingEngine:
    """The target."""
    return CountingEngine(device, seed)
