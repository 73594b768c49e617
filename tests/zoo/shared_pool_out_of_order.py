"""Two graphs a step share one pool and are replayed in the other order than they were captured in.

torch asks for replays in the order of capture where a later graph reads what an earlier one left in the pool. Here
all that outlives a graph lies outside the pool: the draft graph, captured second, is replayed first, and harmless.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from .capturing import bucket_of, capture

HIDDEN, WIDEST = 16, 4


class DraftAndVerify:
    """A draft half and a verify half; `between` carries the one to the other, `result` the latter out."""

    def __init__(self, device: str, seed: int) -> None:
        self.buckets = [1, 2, WIDEST]
        self.device = device
        generator = torch.Generator().manual_seed(seed)
        self.draft_weight, self.verify_weight = (
            torch.randn(HIDDEN, HIDDEN, generator=generator).to(device) / math.sqrt(HIDDEN) for _ in range(2)
        )

    def next_inputs(self, step: int, n: int) -> torch.Tensor:
        """Hidden states."""
        generator = torch.Generator().manual_seed(step)
        return torch.randn(WIDEST, HIDDEN, generator=generator)[:n].to(self.device)

    def draft(self, hidden: torch.Tensor) -> torch.Tensor:
        """First half."""
        return (hidden @ self.draft_weight).relu() + 1

    def verify(self, drafted: torch.Tensor) -> torch.Tensor:
        """Second half."""
        return (drafted @ self.verify_weight).softmax(-1)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Both halves."""
        return self.verify(self.draft(hidden))

    def reset(self) -> None:
        """No state."""

    def graphed(self) -> Callable[[torch.Tensor], torch.Tensor]:
        """Verify graphs captured before draft graphs, small before large; used in every other order."""
        hidden = torch.zeros(WIDEST, HIDDEN, device=self.device)
        between, result = torch.zeros_like(hidden), torch.zeros_like(hidden)
        pool = torch.cuda.graph_pool_handle()
        verifies = {b: capture(lambda b=b: result[:b].copy_(self.verify(between[:b])), pool)[0] for b in self.buckets}  # type: ignore[misc]
        drafts = {b: capture(lambda b=b: between[:b].copy_(self.draft(hidden[:b])), pool)[0] for b in self.buckets}  # type: ignore[misc]

        def run(fresh: torch.Tensor, kept: torch.Tensor = between) -> torch.Tensor:  # graphs keep no memory alive
            bucket = bucket_of(len(fresh), self.buckets)
            hidden[: len(fresh)].copy_(fresh)
            drafts[bucket].replay()
            verifies[bucket].replay()
            return result[: len(fresh)].clone()

        return run


def target(device: str, seed: int = 0) -> DraftAndVerify:
    """The target."""
    return DraftAndVerify(device, seed)
