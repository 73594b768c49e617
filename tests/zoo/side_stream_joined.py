"""The shared expert runs on a side stream that is forked from the current one and joined again, eager and captured.

A careless tool takes work on another stream for work that is not in the graph, or takes the two branches, which only
read the same input, for a race.
"""

from __future__ import annotations

import math

import torch

HIDDEN, WIDEST = 32, 4


class Forked:
    """Routed part on the current stream, shared part on the side stream."""

    def __init__(self, device: str, seed: int) -> None:
        self.buckets = [1, 2, WIDEST]
        self.device = device
        generator = torch.Generator().manual_seed(seed)
        self.routed, self.shared = (
            torch.randn(HIDDEN, HIDDEN, generator=generator).to(device) / math.sqrt(HIDDEN) for _ in range(2)
        )
        self.side = torch.cuda.Stream()

    def next_inputs(self, step: int, n: int) -> torch.Tensor:
        """Hidden states."""
        generator = torch.Generator().manual_seed(step)
        return torch.randn(WIDEST, HIDDEN, generator=generator)[:n].to(self.device)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Fork, work on both, join."""
        main = torch.cuda.current_stream()
        # Allocated on the current stream: freed there too, after the join, so that its memory is never reused early.
        shared = torch.empty_like(hidden)
        self.side.wait_stream(main)
        with torch.cuda.stream(self.side):
            torch.matmul(hidden, self.shared, out=shared)
        routed = (hidden @ self.routed).relu()
        main.wait_stream(self.side)
        return routed + shared

    def reset(self) -> None:
        """No state."""


def target(device: str, seed: int = 0) -> Forked:
    """The target."""
    return Forked(device, seed)
