"""A workspace that is never initialised and keeps what the last step left in it.

Split partial sums go there, as split-K and split-KV kernels do it; padding rows write their part of it too, and
nobody reads a part that the same step has not written. A careless tool takes all memory that a step writes for state,
and reports that graph and eager leave it different.
"""

from __future__ import annotations

import torch

HIDDEN, SPLITS, WIDEST = 32, 4, 4


class Workspace:
    """A matrix product in SPLITS parts, summed up from the workspace."""

    def __init__(self, device: str, seed: int) -> None:
        self.buckets = [1, 2, WIDEST]
        self.device = device
        generator = torch.Generator().manual_seed(seed)
        self.weight = torch.randn(SPLITS, HIDDEN // SPLITS, HIDDEN, generator=generator).to(device)
        self.workspace = torch.empty(2 * WIDEST, SPLITS, HIDDEN, device=device)

    def next_inputs(self, step: int, n: int) -> torch.Tensor:
        """Hidden states."""
        generator = torch.Generator().manual_seed(step)
        return torch.randn(WIDEST, HIDDEN, generator=generator)[:n].to(self.device)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Partial sums to the workspace, then their sum."""
        n = len(hidden)
        parts = hidden.view(n, SPLITS, HIDDEN // SPLITS)
        self.workspace[:n].copy_((parts[..., None] * self.weight).sum(2))
        return self.workspace[:n].sum(1)

    def reset(self) -> None:
        """Nothing to put back: the workspace's content has no meaning between steps."""


def target(device: str, seed: int = 0) -> Workspace:
    """The target."""
    return Workspace(device, seed)
