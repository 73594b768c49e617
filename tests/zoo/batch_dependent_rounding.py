"""Matrix products round differently for different numbers of rows: exact batch and padded bucket differ by rounding.

Libraries choose kernel and split by shape. A careless tool demands bitwise equality of eager on 3 rows and a graph of
4; at most that is a note on numerics.
"""

from __future__ import annotations

import math

import torch

HIDDEN, LAYERS, WIDEST = 512, 4, 8


class Deep:
    """A few residual layers with a long reduction each, and a running state."""

    def __init__(self, device: str, seed: int) -> None:
        self.buckets = [4, WIDEST]
        self.device = device
        generator = torch.Generator().manual_seed(seed)
        self.weights = [
            torch.randn(HIDDEN, HIDDEN, generator=generator).to(device) / math.sqrt(HIDDEN) for _ in range(LAYERS)
        ]
        self.state_sum = torch.zeros(WIDEST, HIDDEN, device=device)

    def next_inputs(self, step: int, n: int) -> dict[str, torch.Tensor]:
        """Hidden states; `live` is 1 for requests and 0 for padding."""
        generator = torch.Generator().manual_seed(step)
        hidden = torch.randn(WIDEST, HIDDEN, generator=generator)[:n]
        return {"hidden": hidden.to(self.device), "live": torch.ones(n, 1, device=self.device)}

    def update(self, static: dict[str, torch.Tensor], fresh: dict[str, torch.Tensor]) -> None:
        """Padding rows are not live."""
        static["live"].zero_()
        for name, tensor in fresh.items():
            static[name][: len(tensor)].copy_(tensor)

    def forward(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """Layers, and what they gave so far."""
        hidden = inputs["hidden"]
        for weight in self.weights:
            hidden = hidden + (hidden @ weight).tanh()
        total = self.state_sum[: len(hidden)]
        total.add_(hidden * inputs["live"])
        return total.clone()

    def reset(self) -> None:
        """Nothing yet."""
        self.state_sum.zero_()


def target(device: str, seed: int = 0) -> Deep:
    """The target."""
    return Deep(device, seed)
