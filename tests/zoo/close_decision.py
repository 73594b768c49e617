"""A router decides by the sign of a score near zero, and the score rounds differently for different numbers of rows.

Experts are chosen like this. Eager on 3 rows and a graph of 4 then take other ones: outputs differ by far more than
rounding, and neither is wrong.
"""

from __future__ import annotations

import torch

WIDTH = 8


class Router:
    """One of two experts a row; the rounding of a kernel that sums in another order is played by hand."""

    def __init__(self, device: str, seed: int) -> None:
        self.buckets = [2, 4]
        self.device = device
        generator = torch.Generator().manual_seed(seed)
        self.experts = torch.randn(2, WIDTH, WIDTH, generator=generator).to(device)

    def next_inputs(self, step: int, n: int) -> dict[str, torch.Tensor]:
        """Hidden states, of order 1."""
        generator = torch.Generator().manual_seed(step)
        return {"hidden": torch.randn(4, WIDTH, generator=generator)[:n].to(self.device)}

    def static_inputs(self, bucket: int) -> dict[str, torch.Tensor]:
        """Zeros."""
        return {"hidden": torch.zeros(bucket, WIDTH, device=self.device)}

    def update(self, static: dict[str, torch.Tensor], fresh: dict[str, torch.Tensor]) -> None:
        """Zeros behind the batch."""
        static["hidden"].zero_()
        static["hidden"][: len(fresh["hidden"])].copy_(fresh["hidden"])

    def forward(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """Each row through its expert."""
        hidden = inputs["hidden"]
        total = (hidden.sum(1, keepdim=True) + 1) - 1e-6 * (len(hidden) % 4)
        score = total - (hidden.sum(1, keepdim=True) + 1) + 5e-7
        first, second = (hidden @ expert for expert in self.experts)
        return torch.where(score > 0, first, second)

    def reset(self) -> None:
        """Nothing to do."""


def target(device: str, seed: int = 0) -> Router:
    """The target."""
    return Router(device, seed)
