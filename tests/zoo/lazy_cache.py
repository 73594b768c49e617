"""The cache is allocated by the first step, and under inference mode.

A careless tool takes its snapshot of memory before the first step and later misses the cache (or takes it for
garbage), reports that `reset()` does not make `cache` None again, or dies when it restores an inference tensor in
place.
"""

from __future__ import annotations

import torch

LENGTH, HIDDEN, ROWS = 16, 8, 4


class LazyCache:
    """Running mean of all inputs of a row; a row without a request has weight 0."""

    def __init__(self, device: str, seed: int) -> None:
        self.buckets = [1, 2, 4]
        self.device = device
        self.weight = torch.randn(HIDDEN, HIDDEN, generator=torch.Generator().manual_seed(seed)).to(device)
        self.cache: torch.Tensor | None = None

    def next_inputs(self, step: int, n: int) -> dict[str, torch.Tensor]:
        """Hidden states and where they go."""
        generator = torch.Generator().manual_seed(step)
        hidden = torch.randn(ROWS, HIDDEN, generator=generator)[:n]
        at = torch.tensor([step % LENGTH] * n)
        return {
            "hidden": hidden.to(self.device),
            "at": at.to(self.device),
            "live": torch.ones(n, 1, device=self.device),
        }

    def update(self, static: dict[str, torch.Tensor], fresh: dict[str, torch.Tensor]) -> None:
        """Rows behind the batch are marked dead."""
        static["live"].zero_()
        for name, tensor in fresh.items():
            static[name][: len(tensor)].copy_(tensor)

    @torch.inference_mode()
    def forward(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """Blend the new hidden state in; dead rows blend nothing in."""
        if self.cache is None:
            self.cache = torch.zeros(ROWS, LENGTH, HIDDEN, device=self.device)
        n = len(inputs["hidden"])
        rows = torch.arange(n, device=self.device)
        old = self.cache[rows, inputs["at"]]
        self.cache[rows, inputs["at"]] = torch.where(inputs["live"] > 0, inputs["hidden"] @ self.weight, old)
        return self.cache[:n].mean(1)

    @torch.inference_mode()
    def reset(self) -> None:
        """Empty the cache if there is one; it stays where it is, since graphs hold its address."""
        if self.cache is not None:
            self.cache.zero_()


def target(device: str, seed: int = 0) -> LazyCache:
    """The target."""
    return LazyCache(device, seed)
