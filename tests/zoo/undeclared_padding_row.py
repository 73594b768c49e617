"""Padding rows write a row of the cache that nobody ever reads, and the target does not say so.

Most engines have such a place and no word for it. A careless tool reports state that the graph writes and eager does
not. Whether it does harm can be tried: no later step depends on it, apart from the rounding of the live slots.
"""

from __future__ import annotations

import torch

from .paged_engine import PagedEngine


class Undeclared:
    """An engine around the engine, without `reserved`."""

    def __init__(self, device: str, seed: int) -> None:
        self.batch_sizes = [1, 2, 3, 4]
        self.engine = PagedEngine(device, seed)

    def reset(self) -> None:
        """Empty caches."""
        self.engine.reset()

    def step(self, i: int, n: int) -> dict[str, torch.Tensor]:
        """Decode step `i` on `n` rows."""
        return self.engine.step(i, n)

    def graphs(self, on: bool) -> None:
        """The enforce-eager switch."""
        self.engine.graphs(on)

    def recapture(self) -> None:
        """As at start-up."""
        self.engine.capture_all()


def target(device: str, seed: int = 0) -> Undeclared:
    """The target."""
    return Undeclared(device, seed)
