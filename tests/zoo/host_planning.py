"""A plan is made on the host from host lengths, before capture and before each replay (`prepare`), as FlashInfer does.

The static plan buffer has no fresh counterpart, and the step reads a host tensor, but never in a capture. A careless
tool reports an input that nothing is copied to, or runs the static step without a plan.
"""

from __future__ import annotations

import torch

HIDDEN, LENGTH, WIDEST = 8, 16, 4


class Planned:
    """The plan is the mask of keys that each row attends to."""

    def __init__(self, device: str, seed: int) -> None:
        self.buckets = [1, 2, WIDEST]
        self.device = device
        self.keys = torch.randn(WIDEST, LENGTH, HIDDEN, generator=torch.Generator().manual_seed(seed)).to(device)

    def next_inputs(self, step: int, n: int) -> dict[str, torch.Tensor]:
        """Queries on the device, lengths on the host."""
        query = torch.randn(WIDEST, HIDDEN, generator=torch.Generator().manual_seed(step))[:n].to(self.device)
        return {"query": query, "host_lengths": torch.tensor([1 + (step + 5 * row) % LENGTH for row in range(n)])}

    def plan(self, host_lengths: torch.Tensor, rows: int) -> torch.Tensor:
        """Mask (rows, LENGTH) on the device; all rows behind the batch attend to one key."""
        lengths = torch.ones(rows, dtype=torch.int64)
        lengths[: len(host_lengths)] = host_lengths
        return (torch.arange(LENGTH) < lengths[:, None]).to(self.device)

    def static_inputs(self, bucket: int) -> dict[str, torch.Tensor]:
        """A query and a plan, no lengths."""
        query = torch.zeros(bucket, HIDDEN, device=self.device)
        return {"query": query, "plan": torch.ones(bucket, LENGTH, dtype=torch.bool, device=self.device)}

    def update(self, static: dict[str, torch.Tensor], fresh: dict[str, torch.Tensor]) -> None:
        """The query; the plan is `prepare`'s."""
        static["query"][: len(fresh["query"])].copy_(fresh["query"])

    def prepare(
        self, static: dict[str, torch.Tensor], fresh: dict[str, torch.Tensor], bucket: int, capturing: bool
    ) -> None:
        """Plan on the host, then copy into the static buffer."""
        static["plan"].copy_(self.plan(fresh["host_lengths"], bucket))

    def forward(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """Eager steps plan for themselves."""
        query = inputs["query"]
        plan = inputs["plan"] if "plan" in inputs else self.plan(inputs["host_lengths"], len(query))
        keys = self.keys[: len(query)]
        scores = (query[:, None] * keys).sum(-1).masked_fill(~plan, -torch.inf)
        return (scores.softmax(-1)[..., None] * keys).sum(1)

    def reset(self) -> None:
        """No state."""


def target(device: str, seed: int = 0) -> Planned:
    """The target."""
    return Planned(device, seed)
