"""Sampling inside the graph, drawing as much noise as the bucket has rows.

Whether a row of a padded batch draws the number that it draws in an exact batch is up to the generator: on a CPU it
does not. Both are fair samples, and eager on the padded batch gives just what the graph gives. A careless tool
reports other tokens and, later, a generator that is ahead.
"""

from __future__ import annotations

import torch

VOCAB, WIDEST = 32, 4


class PerBucket:
    """Noise of the shape of the logits, the usual code."""

    def __init__(self, device: str, seed: int) -> None:
        self.buckets = [1, 2, WIDEST]
        self.device = device
        self.seed = seed
        self.generator = torch.Generator(device=device).manual_seed(seed)
        self.generators = [self.generator]

    def next_inputs(self, step: int, n: int) -> torch.Tensor:
        """Logits."""
        generator = torch.Generator().manual_seed(100 + step)
        return torch.randn(WIDEST, VOCAB, generator=generator)[:n].to(self.device)

    def forward(self, logits: torch.Tensor) -> torch.Tensor:
        """Tokens by the exponential race."""
        noise = torch.empty_like(logits).exponential_(generator=self.generator)
        return (logits.softmax(-1) / noise).argmax(-1)

    def reset(self) -> None:
        """The first draw again."""
        self.generator.manual_seed(self.seed)


def target(device: str, seed: int = 0) -> PerBucket:
    """The target."""
    return PerBucket(device, seed)
