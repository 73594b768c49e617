"""Eager takes torch's fused attention, the graph a plain one: another kernel, the same mathematics.

Engines do this on purpose. A careless tool finds different kernel lists or last bits and reports a branch that was
taken only in capture; it is one, and does no harm.
"""

from __future__ import annotations

import math

import torch
from torch.nn import functional

HEAD, LENGTH, WIDEST = 16, 24, 4


class OtherKernel:
    """Attention over a fixed cache."""

    def __init__(self, device: str, seed: int) -> None:
        self.buckets = [1, 2, WIDEST]
        self.device = device
        generator = torch.Generator().manual_seed(seed)
        cache = torch.randn(2, WIDEST, LENGTH, HEAD, generator=generator).to(device)
        self.keys, self.values = cache.unbind(0)

    def next_inputs(self, step: int, n: int) -> torch.Tensor:
        """Queries, (n, 1, HEAD)."""
        generator = torch.Generator().manual_seed(step)
        return torch.randn(WIDEST, 1, HEAD, generator=generator)[:n].to(self.device)

    def forward(self, query: torch.Tensor) -> torch.Tensor:
        """One of two ways to the same result."""
        keys, values = self.keys[: len(query)], self.values[: len(query)]
        if torch.cuda.is_current_stream_capturing():
            scores = (query * keys).sum(-1) / math.sqrt(HEAD)
            return (scores.softmax(-1)[..., None] * values).sum(1, keepdim=True)
        return torch.as_tensor(functional.scaled_dot_product_attention(query, keys, values))

    def reset(self) -> None:
        """No state."""


def target(device: str, seed: int = 0) -> OtherKernel:
    """The target."""
    return OtherKernel(device, seed)
