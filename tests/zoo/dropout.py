"""Dropout at decode time (Monte-Carlo sampling of an ensemble) with a generator of the target's own.

Each replay of the same inputs gives another result, and has to. A careless tool replays twice without putting the
generator back and reports a graph that does not reproduce.
"""

from __future__ import annotations

import torch

HIDDEN, WIDEST = 16, 4


class Dropout:
    """The mask is drawn for the widest bucket, so that a row's mask does not depend on the padding."""

    def __init__(self, device: str, seed: int) -> None:
        self.buckets = [1, 2, WIDEST]
        self.device = device
        self.seed = seed
        self.weight = torch.randn(HIDDEN, HIDDEN, generator=torch.Generator().manual_seed(seed)).to(device)
        self.generator = torch.Generator(device=device).manual_seed(seed)
        self.generators = [self.generator]

    def next_inputs(self, step: int, n: int) -> torch.Tensor:
        """Hidden states."""
        generator = torch.Generator().manual_seed(step)
        return torch.randn(WIDEST, HIDDEN, generator=generator)[:n].to(self.device)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """A layer between two masks."""
        masks = torch.rand(2, WIDEST, HIDDEN, device=self.device, generator=self.generator) > 0.3
        first, second = masks[:, : len(hidden)].unbind(0)
        return ((hidden * first) @ self.weight).relu() * second

    def reset(self) -> None:
        """The first mask again."""
        self.generator.manual_seed(self.seed)


def target(device: str, seed: int = 0) -> Dropout:
    """The target."""
    return Dropout(device, seed)
