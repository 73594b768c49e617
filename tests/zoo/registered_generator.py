"""Sampling inside the graph with a generator of the target's own, listed in `generators`.

A careless tool runs eager and replay from different generator states (its own warm-up and repetitions draw too) and
reports that the graph samples other tokens.
"""

from __future__ import annotations

import torch

VOCAB, WIDEST = 32, 4


class Sampling:
    """Noise is drawn for the widest bucket at once, so that a row's draw does not depend on the padding."""

    def __init__(self, device: str, seed: int) -> None:
        self.buckets = [1, 2, WIDEST]
        self.device = device
        self.seed = seed
        self.generator = torch.Generator(device=device).manual_seed(seed)
        self.generators = [self.generator]

    def next_inputs(self, step: int, n: int) -> dict[str, torch.Tensor]:
        """Logits and temperatures."""
        generator = torch.Generator().manual_seed(100 + step)
        logits = torch.randn(WIDEST, VOCAB, generator=generator)[:n]
        return {"logits": logits.to(self.device), "temperature": torch.full((n, 1), 0.8, device=self.device)}

    def forward(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """Tokens by the exponential race, as multinomial does it."""
        probabilities = (inputs["logits"] / inputs["temperature"]).softmax(-1)
        noise = torch.empty(WIDEST, VOCAB, device=self.device).exponential_(generator=self.generator)
        return (probabilities / noise[: len(probabilities)]).argmax(-1)

    def reset(self) -> None:
        """The first draw again."""
        self.generator.manual_seed(self.seed)


def target(device: str, seed: int = 0) -> Sampling:
    """The target."""
    return Sampling(device, seed)
