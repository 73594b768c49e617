"""Outputs of many dtypes: bf16, fp16, fp8, bool, unsigned bytes, int32, float64, complex.

A careless tool subtracts (bools and fp8 have no minus), upcasts and loses bits, or skips in silence what it can't
compare.
"""

from __future__ import annotations

import torch

HIDDEN, WIDEST = 8, 4


class Dtypes:
    """One product, in many forms."""

    def __init__(self, device: str, seed: int) -> None:
        self.buckets = [1, 2, WIDEST]
        self.device = device
        self.scale = torch.randn(HIDDEN, generator=torch.Generator().manual_seed(seed)).to(device)

    def next_inputs(self, step: int, n: int) -> torch.Tensor:
        """Hidden states."""
        generator = torch.Generator().manual_seed(step)
        return torch.randn(WIDEST, HIDDEN, generator=generator)[:n].to(self.device)

    def forward(self, hidden: torch.Tensor) -> dict[str, torch.Tensor]:
        """Elementwise only, so that all of it is exact."""
        product = hidden * self.scale
        return {
            "bf16": product.bfloat16(),
            "fp16": product.half(),
            "fp8": product.to(torch.float8_e4m3fn),
            "positive": product > 0,
            "byte": (product.abs() * 32).clamp(max=255).to(torch.uint8),
            "int32": (product * 1000).int(),
            "double": product.double(),
            "complex": torch.complex(product, hidden),
            "scalar_a_row": product[:, 0],
        }

    def reset(self) -> None:
        """No state."""


def target(device: str, seed: int = 0) -> Dtypes:
    """The target."""
    return Dtypes(device, seed)
