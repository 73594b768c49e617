"""A host number goes into the step by value: the longest length in eager, its upper bound in the graph.

What is baked into the graph is not the fresh value and need not be: keys behind a request's length are masked. A
careless tool reports every host number that differs from its captured value.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

HIDDEN, LENGTH, WIDEST = 8, 16, 4


@dataclass
class Inputs:
    """One step; `max_len` is how many keys are looked at."""

    query: torch.Tensor
    lengths: torch.Tensor
    max_len: int


class UpperBound:
    """Attention over a fixed cache of keys that are values too."""

    def __init__(self, device: str, seed: int) -> None:
        self.buckets = [1, 2, WIDEST]
        self.device = device
        self.keys = torch.randn(WIDEST, LENGTH, HIDDEN, generator=torch.Generator().manual_seed(seed)).to(device)

    def next_inputs(self, step: int, n: int) -> Inputs:
        """Queries, lengths, and the longest of them."""
        query = torch.randn(WIDEST, HIDDEN, generator=torch.Generator().manual_seed(step))[:n]
        lengths = [1 + (step + 5 * row) % LENGTH for row in range(n)]
        return Inputs(query.to(self.device), torch.tensor(lengths, device=self.device), max(lengths))

    def static_inputs(self, bucket: int) -> Inputs:
        """The upper bound, for good."""
        fresh = self.next_inputs(0, bucket)
        return Inputs(fresh.query, fresh.lengths, LENGTH)

    def update(self, static: Inputs, fresh: Inputs) -> None:
        """Tensors only."""
        static.query[: len(fresh.query)].copy_(fresh.query)
        static.lengths[: len(fresh.lengths)].copy_(fresh.lengths)

    def forward(self, inputs: Inputs) -> torch.Tensor:
        """Attention over the first `max_len` keys."""
        keys = self.keys[: len(inputs.query), : inputs.max_len]
        unused = torch.arange(inputs.max_len, device=self.device) >= inputs.lengths[:, None]
        scores = (inputs.query[:, None] * keys).sum(-1).masked_fill(unused, -torch.inf)
        return (scores.softmax(-1)[..., None] * keys).sum(1)

    def reset(self) -> None:
        """No state."""


def target(device: str, seed: int = 0) -> UpperBound:
    """The target."""
    return UpperBound(device, seed)
