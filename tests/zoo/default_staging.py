"""The four required members and no more, over a cache that is written through a slot mapping.

There is no `update`, so whoever plays the runner stages, padding included. A careless tool leaves the last batch's rows
behind a smaller one, sees them written over live slots, and blames the target for padding that it made up itself.
"""

from __future__ import annotations

import math

import torch

HIDDEN, SLOTS_PER_REQUEST, REQUESTS = 8, 16, 4


class DefaultStaging:
    """Attention over a request's own slots; rows are requests."""

    def __init__(self, device: str, seed: int) -> None:
        self.buckets = [2, 4]
        self.device = device
        generator = torch.Generator().manual_seed(seed)
        self.weight = torch.randn(HIDDEN, 3 * HIDDEN, generator=generator).to(device) / math.sqrt(HIDDEN)
        self.keys, self.values = torch.zeros(2, REQUESTS * SLOTS_PER_REQUEST, HIDDEN, device=device)

    def next_inputs(self, step: int, n: int) -> dict[str, torch.Tensor]:
        """Hidden states, the slots that they go to, and how many slots of each request are in use."""
        generator = torch.Generator().manual_seed(step)
        hidden = torch.randn(REQUESTS, HIDDEN, generator=generator)[:n]
        at = step % SLOTS_PER_REQUEST
        slots = torch.arange(n) * SLOTS_PER_REQUEST + at
        inputs = {"hidden": hidden, "slot_mapping": slots, "seq_lens": torch.full((n,), at + 1)}
        return {name: value.to(self.device) for name, value in inputs.items()}

    def forward(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """One step."""
        query, key, value = (inputs["hidden"] @ self.weight).chunk(3, dim=-1)
        slots = inputs["slot_mapping"]
        self.keys[slots], self.values[slots] = key, value
        places = torch.arange(SLOTS_PER_REQUEST, device=self.device)
        own = slots[:, None] // SLOTS_PER_REQUEST * SLOTS_PER_REQUEST + places
        scores = (
            (query[:, None] * self.keys[own]).sum(-1).masked_fill(places >= inputs["seq_lens"][:, None], -torch.inf)
        )
        mixed: torch.Tensor = (scores.softmax(-1)[..., None] * self.values[own]).sum(1)
        return mixed

    def reset(self) -> None:
        """Empty."""
        self.keys.zero_()
        self.values.zero_()


def target(device: str, seed: int = 0) -> DefaultStaging:
    """The target."""
    return DefaultStaging(device, seed)
