"""Part of the step is compiled (default mode), and eager meets more batch sizes than the compiler wants to know.

Kernels differ between batch sizes, under a dispatch mode, and once the recompile limit sends eager calls to
uncompiled code while the graph keeps the compiled kernels. A careless tool demands that eager and graph agree bit for
bit.
"""

from __future__ import annotations

import torch
from torch import nn

HIDDEN, WIDEST = 64, 16


class Compiled:
    """Two linear layers around a compiled, fused middle."""

    def __init__(self, device: str, seed: int) -> None:
        self.buckets = [1, 2, 4, 8, WIDEST]
        self.device = device
        torch.manual_seed(seed)
        self.first = nn.Linear(HIDDEN, 2 * HIDDEN).to(device, torch.bfloat16)
        self.last = nn.Linear(HIDDEN, HIDDEN).to(device, torch.bfloat16)
        self.middle = torch.compile(self.gate)

    @staticmethod
    def gate(x: torch.Tensor) -> torch.Tensor:
        """Normalise, split, gate."""
        scaled = x.float()
        scaled = scaled * torch.rsqrt(scaled.pow(2).mean(-1, keepdim=True) + 1e-6)
        up, gate = scaled.chunk(2, dim=-1)
        return (up * nn.functional.silu(gate)).to(x.dtype)

    def next_inputs(self, step: int, n: int) -> torch.Tensor:
        """Hidden states."""
        generator = torch.Generator().manual_seed(step)
        return torch.randn(WIDEST, HIDDEN, generator=generator)[:n].to(self.device, torch.bfloat16)

    @torch.inference_mode()
    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """One block."""
        return torch.as_tensor(self.last(self.middle(self.first(hidden))))

    def reset(self) -> None:
        """No state."""


def target(device: str, seed: int = 0) -> Compiled:
    """The target."""
    return Compiled(device, seed)
