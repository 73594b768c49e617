"""The step advances its own positions, on the device, inside the graph.

Warm-up, capture and every repetition of a step move the positions. A careless tool restores the keys and values that
it knows of but not this tensor, and then reports a difference that it made itself.
"""

from __future__ import annotations

import torch

from .paged import HIDDEN, LENGTH, ROWS, VOCAB


class Counting:
    """A contiguous cache a row; `rows` says which request a batch row is, ROWS being the one for padding."""

    def __init__(self, device: str, seed: int) -> None:
        self.buckets = [1, 2, 4]
        self.device = device
        generator = torch.Generator().manual_seed(seed)
        self.embedding = torch.randn(VOCAB, HIDDEN, generator=generator).to(device)
        self.cache = torch.zeros(ROWS + 1, LENGTH, HIDDEN, device=device)
        self.position = torch.zeros(ROWS + 1, dtype=torch.int64, device=device)

    def next_inputs(self, step: int, n: int) -> dict[str, torch.Tensor]:
        """Tokens and requests: no positions."""
        tokens = [(5 * step + row) % VOCAB for row in range(n)]
        return {
            "tokens": torch.tensor(tokens, device=self.device),
            "rows": torch.arange(n, device=self.device),
        }

    def static_inputs(self, bucket: int) -> dict[str, torch.Tensor]:
        """All padding."""
        tokens = torch.zeros(bucket, dtype=torch.int64, device=self.device)
        return {"tokens": tokens, "rows": torch.full_like(tokens, ROWS)}

    def update(self, static: dict[str, torch.Tensor], fresh: dict[str, torch.Tensor]) -> None:
        """Padding rows are request ROWS."""
        static["rows"].fill_(ROWS)
        for name, tensor in fresh.items():
            static[name][: len(tensor)].copy_(tensor)

    def forward(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """Write at the position, advance it, return the sum of what was written so far."""
        rows = inputs["rows"]
        at = self.position[rows] % LENGTH
        self.cache[rows, at] = self.embedding[inputs["tokens"]]
        self.position.index_add_(0, rows, torch.ones_like(rows))
        return self.cache[rows].sum(1)

    def reset(self) -> None:
        """Empty, at position 0."""
        self.cache.zero_()
        self.position.zero_()

    def state(self) -> dict[str, torch.Tensor]:
        """Both state tensors."""
        return {"cache": self.cache, "position": self.position}

    def reserved(self) -> dict[str, list[int]]:
        """Request ROWS."""
        return {"cache": [ROWS], "position": [ROWS]}


def target(device: str, seed: int = 0) -> Counting:
    """The target."""
    return Counting(device, seed)
