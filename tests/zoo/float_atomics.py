"""Float atomics: expert outputs and expert loads are summed in an order that no two runs share.

On a GPU both the outputs and a state tensor differ between any two runs, eager or not. A careless tool that controls
its outputs but not its state (or the other way round) cries wolf.
"""

from __future__ import annotations

import torch

HIDDEN, EXPERTS, WIDEST = 64, 96, 4


class Mixture:
    """Each row is scattered to all experts and summed up again; a running load of each expert is kept."""

    def __init__(self, device: str, seed: int) -> None:
        self.buckets = [1, 2, WIDEST]
        self.device = device
        generator = torch.Generator().manual_seed(seed)
        self.scale = torch.randn(EXPERTS, HIDDEN, generator=generator).exp().to(device)
        self.load = torch.zeros(EXPERTS // 8, device=device)

    def next_inputs(self, step: int, n: int) -> dict[str, torch.Tensor]:
        """Hidden states and gates, (n, HIDDEN) and (n, EXPERTS)."""
        generator = torch.Generator().manual_seed(step)
        hidden = torch.randn(WIDEST, HIDDEN, generator=generator)[:n]
        gates = torch.rand(WIDEST, EXPERTS, generator=generator)[:n]
        return {"hidden": hidden.to(self.device), "gates": gates.to(self.device)}

    def update(self, static: dict[str, torch.Tensor], fresh: dict[str, torch.Tensor]) -> None:
        """Padding rows have gates of 0: they add nothing to the loads."""
        static["gates"].zero_()
        for name, tensor in fresh.items():
            static[name][: len(tensor)].copy_(tensor)

    def forward(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """Combine by index_add_, count by scatter_add_."""
        hidden, gates = inputs["hidden"], inputs["gates"]
        pairs = torch.arange(gates.numel(), device=self.device)
        outputs = (hidden[:, None] * self.scale * gates[..., None]).flatten(0, 1)
        combined = torch.zeros_like(hidden).index_add_(0, pairs // EXPERTS, outputs)
        self.load.scatter_add_(0, pairs % len(self.load), gates.flatten())
        return combined

    def reset(self) -> None:
        """No load."""
        self.load.zero_()


def target(device: str, seed: int = 0) -> Mixture:
    """The target."""
    return Mixture(device, seed)
