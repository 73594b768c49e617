"""A decode shape whose attention kernel is not deterministic: eager differs from eager, replay from replay.

Batch 8, 32 heads, one query, 2,048 keys, head 128. A careless tool demands bitwise equality without asking what the
same thing done twice gives.
"""

from __future__ import annotations

import torch
from torch.nn import functional

ROWS, HEADS, LENGTH, HEAD = 8, 32, 2048, 128


class Attention:
    """Attention over a fixed cache of 256 MiB."""

    def __init__(self, device: str, seed: int) -> None:
        self.buckets = [ROWS]
        self.device = device
        generator = torch.Generator(device=device).manual_seed(seed)
        shape = (2, ROWS, HEADS, LENGTH, HEAD)
        self.cache = torch.randn(shape, generator=generator, dtype=torch.bfloat16, device=device)

    def next_inputs(self, step: int, n: int) -> torch.Tensor:
        """Queries, (n, HEADS, 1, HEAD)."""
        generator = torch.Generator().manual_seed(step)
        queries = torch.randn(ROWS, HEADS, 1, HEAD, generator=generator)[:n]
        return queries.to(self.device, torch.bfloat16)

    def forward(self, queries: torch.Tensor) -> torch.Tensor:
        """Whatever kernel torch chooses."""
        keys, values = self.cache[:, : len(queries)]
        return functional.scaled_dot_product_attention(queries, keys, values)

    def reset(self) -> None:
        """No state."""


def target(device: str, seed: int = 0) -> Attention:
    """The target."""
    return Attention(device, seed)
