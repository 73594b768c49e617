"""Live outputs with -inf and NaN in them, the same ones in eager and graph.

Banned tokens have logits of -inf; a row that has everything banned has NaN probabilities. A careless tool compares by
value (NaN differs from NaN), gets a NaN difference, or reports every NaN that it meets.
"""

from __future__ import annotations

import torch

VOCAB, WIDEST = 32, 4


class Banned:
    """Softmax over the tokens that are allowed."""

    def __init__(self, device: str, seed: int) -> None:
        self.buckets = [1, 2, WIDEST]
        self.device = device
        self.seed = seed

    def next_inputs(self, step: int, n: int) -> dict[str, torch.Tensor]:
        """Logits and bans; row `step % WIDEST` has all tokens banned."""
        generator = torch.Generator().manual_seed(1000 * self.seed + step)
        logits = torch.randn(WIDEST, VOCAB, generator=generator)
        banned = torch.rand(WIDEST, VOCAB, generator=generator) < 0.3
        banned[step % WIDEST] = True
        return {"logits": logits[:n].to(self.device), "banned": banned[:n].to(self.device)}

    def forward(self, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Masked logits, probabilities, and the logits' largest and smallest as they are."""
        masked = inputs["logits"].masked_fill(inputs["banned"], -torch.inf)
        return {"masked": masked, "probabilities": masked.softmax(-1), "overflow": (masked * -1e38).exp()}

    def reset(self) -> None:
        """No state."""


def target(device: str, seed: int = 0) -> Banned:
    """The target."""
    return Banned(device, seed)
