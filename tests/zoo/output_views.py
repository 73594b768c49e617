"""Outputs that are views: of an input, of state, of each other, and one tensor under two names.

The static output of a graph is then the static input itself. A careless tool reports aliasing, sees an "output"
overwritten when the next step is staged, or restores one view over another.
"""

from __future__ import annotations

import torch

HIDDEN, WIDEST = 8, 4


class Views:
    """Passes some of what it gets on as it is."""

    def __init__(self, device: str, seed: int) -> None:
        self.buckets = [1, 2, WIDEST]
        self.device = device
        self.scale = torch.randn(HIDDEN, generator=torch.Generator().manual_seed(seed)).to(device)
        self.last = torch.zeros(WIDEST, HIDDEN, device=device)

    def next_inputs(self, step: int, n: int) -> dict[str, torch.Tensor]:
        """Hidden states; rows behind the batch are dead."""
        generator = torch.Generator().manual_seed(step)
        hidden = torch.randn(WIDEST, HIDDEN, generator=generator)[:n]
        return {"hidden": hidden.to(self.device), "live": torch.ones(n, 1, dtype=torch.bool, device=self.device)}

    def update(self, static: dict[str, torch.Tensor], fresh: dict[str, torch.Tensor]) -> None:
        """Rows behind the batch are marked dead."""
        static["live"].zero_()
        for name, tensor in fresh.items():
            static[name][: len(tensor)].copy_(tensor)

    def forward(self, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Blend into the state where live."""
        hidden = inputs["hidden"]
        last = self.last[: len(hidden)]
        last.copy_(torch.where(inputs["live"], 0.5 * last + hidden * self.scale, last))
        double = last * 2
        return {
            "input": hidden,
            "half_of_input": hidden[:, : HIDDEN // 2],
            "state": last,
            "double": double,
            "double_again": double,
            "column": double[:, 1],
        }

    def reset(self) -> None:
        """Nothing was last."""
        self.last.zero_()


def target(device: str, seed: int = 0) -> Views:
    """The target."""
    return Views(device, seed)
