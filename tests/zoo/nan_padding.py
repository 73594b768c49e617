"""NaN wherever nobody looks: in the inputs of padding rows and in cache slots that were never written.

The mask replaces values (it does not multiply by 0), so no NaN reaches a live row. A careless tool compares NaN with
NaN by value, or reports NaN in a static input.
"""

from __future__ import annotations

import torch

HIDDEN, LENGTH, WIDEST = 8, 16, 4


class NanPadding:
    """A contiguous cache a row, poisoned at the start; padding rows write nothing."""

    def __init__(self, device: str, seed: int) -> None:
        self.buckets = [1, 2, WIDEST]
        self.device = device
        self.weight = torch.randn(HIDDEN, HIDDEN, generator=torch.Generator().manual_seed(seed)).to(device)
        self.cache = torch.full((WIDEST, LENGTH, HIDDEN), torch.nan, device=device)

    def next_inputs(self, step: int, n: int) -> dict[str, torch.Tensor]:
        """Hidden states and positions."""
        generator = torch.Generator().manual_seed(step)
        hidden = torch.randn(WIDEST, HIDDEN, generator=generator)[:n].to(self.device)
        return {"hidden": hidden, "positions": torch.tensor([step % LENGTH] * n, device=self.device)}

    def update(self, static: dict[str, torch.Tensor], fresh: dict[str, torch.Tensor]) -> None:
        """Poison the rows behind the batch; position -1 makes them inactive."""
        static["hidden"].fill_(torch.nan)
        static["positions"].fill_(-1)
        for name, tensor in fresh.items():
            static[name][: len(tensor)].copy_(tensor)

    def forward(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """Write at the position where there is one; sum what has been written."""
        hidden, positions = inputs["hidden"], inputs["positions"]
        rows = self.cache[: len(hidden)]
        at = torch.arange(LENGTH, device=self.device) == positions[:, None]
        rows.copy_(torch.where(at[..., None], (hidden @ self.weight)[:, None], rows))
        return torch.where(rows.isnan(), torch.zeros_like(rows), rows).sum(1)

    def reset(self) -> None:
        """All poison."""
        self.cache.fill_(torch.nan)


def target(device: str, seed: int = 0) -> NanPadding:
    """The target."""
    return NanPadding(device, seed)
