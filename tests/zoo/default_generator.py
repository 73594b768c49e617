"""Sampling inside the graph with torch's default generator; the target lists no generators.

A careless tool saves only the generators it was told of, so its own repetitions advance the default one, and each arm
samples other tokens.
"""

from __future__ import annotations

import torch

VOCAB, WIDEST = 32, 4


class DefaultSampling:
    """Noise is drawn for the widest bucket at once, so that a row's draw does not depend on the padding."""

    def __init__(self, device: str, seed: int) -> None:
        self.buckets = [1, 2, WIDEST]
        self.device = device
        self.seed = seed
        self.reset()

    def next_inputs(self, step: int, n: int) -> torch.Tensor:
        """Logits."""
        generator = torch.Generator().manual_seed(100 + step)
        return torch.randn(WIDEST, VOCAB, generator=generator)[:n].to(self.device)

    def forward(self, logits: torch.Tensor) -> torch.Tensor:
        """Tokens by the Gumbel trick."""
        noise = torch.rand(WIDEST, VOCAB, device=self.device).clamp_(1e-6, 1 - 1e-6)
        return (logits - (-noise.log()).log()[: len(logits)]).argmax(-1)

    def reset(self) -> None:
        """The first draw again."""
        torch.manual_seed(self.seed)


def target(device: str, seed: int = 0) -> DefaultSampling:
    """The target."""
    return DefaultSampling(device, seed)
