"""A contiguous cache for one request, written by index_copy_ at a device position; the unwritten end is masked.

The gpt-fast way. State is updated in place through a view of a slice of a larger buffer; a careless tool follows the
view's address only, or expects a new tensor.
"""

from __future__ import annotations

import math

import torch

HIDDEN, LENGTH, LAYERS = 8, 64, 2


class IndexCopy:
    """Two layers' caches in one buffer; batch 1."""

    def __init__(self, device: str, seed: int) -> None:
        self.buckets = [1]
        self.device = device
        generator = torch.Generator().manual_seed(seed)
        self.weights = torch.randn(LAYERS, HIDDEN, 3 * HIDDEN, generator=generator).to(device) / math.sqrt(HIDDEN)
        self.cache = torch.zeros(LAYERS, 2, LENGTH, HIDDEN, device=device)

    def next_inputs(self, step: int, n: int) -> dict[str, torch.Tensor]:
        """Hidden state and position, (1, HIDDEN) and (1,)."""
        generator = torch.Generator().manual_seed(step)
        hidden = torch.randn(n, HIDDEN, generator=generator).to(self.device)
        return {"hidden": hidden, "position": torch.tensor([step % LENGTH], device=self.device)}

    def forward(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """Attention of the one query over the positions so far."""
        hidden, position = inputs["hidden"], inputs["position"]
        unused = torch.arange(LENGTH, device=self.device) > position
        for weight, (keys, values) in zip(self.weights, self.cache, strict=True):
            query, key, value = (hidden @ weight).chunk(3, dim=-1)
            keys.index_copy_(0, position, key)
            values.index_copy_(0, position, value)
            scores = (query @ keys.T).masked_fill(unused, -torch.inf)
            hidden = hidden + scores.softmax(-1) @ values
        return hidden

    def reset(self) -> None:
        """Empty."""
        self.cache.zero_()


def target(device: str, seed: int = 0) -> IndexCopy:
    """The target."""
    return IndexCopy(device, seed)
