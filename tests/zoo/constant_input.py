"""Two inputs never change: a temperature and an end-of-sequence id. They are staged once and never again.

A careless tool reports them as frozen: their static buffers are never refreshed. They hold what fresh inputs hold.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

VOCAB, WIDEST = 32, 4


@dataclass
class Inputs:
    """One step; `logits` is the only part that changes."""

    logits: torch.Tensor
    temperature: torch.Tensor
    eos: torch.Tensor


class Constant:
    """`update` leaves the constants alone."""

    def __init__(self, device: str, seed: int) -> None:
        self.buckets = [1, 2, WIDEST]
        self.device = device
        self.seed = seed

    def next_inputs(self, step: int, n: int) -> Inputs:
        """New logits and the same constants."""
        generator = torch.Generator().manual_seed(1000 * self.seed + step)
        logits = torch.randn(WIDEST, VOCAB, generator=generator)[:n].to(self.device)
        temperature = torch.full((n, 1), 0.7, device=self.device)
        return Inputs(logits, temperature, torch.full((n,), 2, dtype=torch.int64, device=self.device))

    def static_inputs(self, bucket: int) -> Inputs:
        """The constants are right from the start, in every row."""
        return self.next_inputs(0, bucket)

    def update(self, static: Inputs, fresh: Inputs) -> None:
        """Copies the logits."""
        static.logits[: len(fresh.logits)].copy_(fresh.logits)

    def forward(self, inputs: Inputs) -> dict[str, torch.Tensor]:
        """Probabilities and whether the greedy token ends the request."""
        probabilities = (inputs.logits / inputs.temperature).softmax(-1)
        return {"probabilities": probabilities, "done": probabilities.argmax(-1) == inputs.eos}

    def reset(self) -> None:
        """No state."""


def target(device: str, seed: int = 0) -> Constant:
    """The target."""
    return Constant(device, seed)
