"""Inputs that are not contiguous: a transposed buffer, every second element, a broadcast one; an output is strided too.

A careless tool makes contiguous static buffers, compares storages instead of elements, or takes the bytes between the
elements for part of the input.
"""

from __future__ import annotations

import torch

HIDDEN, WIDEST = 8, 4


class Strided:
    """Elementwise arithmetic over odd layouts."""

    def __init__(self, device: str, seed: int) -> None:
        self.buckets = [1, 2, WIDEST]
        self.device = device
        self.scale = torch.randn(HIDDEN, generator=torch.Generator().manual_seed(seed)).to(device)

    def next_inputs(self, step: int, n: int) -> dict[str, torch.Tensor]:
        """Three layouts of (n, HIDDEN)."""
        generator = torch.Generator().manual_seed(step)
        columns = torch.randn(HIDDEN, WIDEST, generator=generator)[:, :n].to(self.device)
        pairs = torch.randn(WIDEST, HIDDEN, 2, generator=generator)[:n].to(self.device)
        row = torch.randn(HIDDEN, generator=generator).to(self.device)
        return {"transposed": columns.T, "every_second": pairs[..., 0], "broadcast": row.expand(n, HIDDEN)}

    def static_inputs(self, bucket: int) -> dict[str, torch.Tensor]:
        """The same layouts over buffers of the target's own."""
        columns = torch.zeros(HIDDEN, bucket, device=self.device)
        pairs = torch.zeros(bucket, HIDDEN, 2, device=self.device)
        row = torch.zeros(HIDDEN, device=self.device)
        return {"transposed": columns.T, "every_second": pairs[..., 0], "broadcast": row.expand(bucket, HIDDEN)}

    def update(self, static: dict[str, torch.Tensor], fresh: dict[str, torch.Tensor]) -> None:
        """The broadcast buffer has one row only: a copy into all rows of it is refused by torch."""
        n = len(fresh["transposed"])
        static["transposed"][:n].copy_(fresh["transposed"])
        static["every_second"][:n].copy_(fresh["every_second"])
        static["broadcast"][0].copy_(fresh["broadcast"][0])

    def forward(self, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """A sum, and a transposed view of a product."""
        total = inputs["transposed"] + inputs["every_second"] * inputs["broadcast"]
        product = torch.stack([total * self.scale, total], dim=2)
        return {"total": total, "strided": product[..., 0]}

    def reset(self) -> None:
        """No state."""


def target(device: str, seed: int = 0) -> Strided:
    """The target."""
    return Strided(device, seed)
