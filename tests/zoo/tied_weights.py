"""Embedding and LM head are one tensor under two names, and weights want gradients.

A careless tool names a pointer after the wrong one of two equal ranges, finds two weights at one address suspicious,
copies outputs that carry a gradient function in place, or counts one storage twice.
"""

from __future__ import annotations

import torch
from torch import nn

HIDDEN, VOCAB, WIDEST = 16, 32, 4


class Tied(nn.Module):
    """The smallest language model, as nn.Module; `forward` is the step."""

    def __init__(self, device: str, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.buckets = [1, 2, WIDEST]
        self.device = device
        self.embedding = nn.Embedding(VOCAB, HIDDEN)
        self.inner = nn.Linear(HIDDEN, HIDDEN)
        self.head = nn.Linear(HIDDEN, VOCAB, bias=False)
        self.head.weight = self.embedding.weight
        self.to(device)

    def next_inputs(self, step: int, n: int) -> torch.Tensor:
        """Tokens."""
        return torch.tensor([(3 * step + row) % VOCAB for row in range(n)], device=self.device)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits, with their gradient function."""
        return torch.as_tensor(self.head(self.inner(self.embedding(tokens)).tanh()))

    def reset(self) -> None:
        """No state."""


def target(device: str, seed: int = 0) -> Tied:
    """The target."""
    return Tied(device, seed)
