"""A second stream is used only while capturing, to give the graph two branches; eager runs them one after the other.

A careless tool sees that the capture takes a branch which eager does not take, or nodes on a stream that eager never
used, and reports it. The arithmetic is the same.
"""

from __future__ import annotations

import math

import torch

HIDDEN, WIDEST = 32, 4


class OverlapInCapture:
    """Query and key projections, overlapped where it pays."""

    def __init__(self, device: str, seed: int) -> None:
        self.buckets = [1, 2, WIDEST]
        self.device = device
        generator = torch.Generator().manual_seed(seed)
        self.query, self.key = (
            torch.randn(HIDDEN, HIDDEN, generator=generator).to(device) / math.sqrt(HIDDEN) for _ in range(2)
        )
        self.side = torch.cuda.Stream()

    def next_inputs(self, step: int, n: int) -> torch.Tensor:
        """Hidden states."""
        generator = torch.Generator().manual_seed(step)
        return torch.randn(WIDEST, HIDDEN, generator=generator)[:n].to(self.device)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Product of both projections."""
        key = torch.empty_like(hidden)
        if torch.cuda.is_current_stream_capturing():
            main = torch.cuda.current_stream()
            self.side.wait_stream(main)
            with torch.cuda.stream(self.side):
                torch.matmul(hidden, self.key, out=key)
            query = hidden @ self.query
            main.wait_stream(self.side)
        else:
            torch.matmul(hidden, self.key, out=key)
            query = hidden @ self.query
        return query * key

    def reset(self) -> None:
        """No state."""


def target(device: str, seed: int = 0) -> OverlapInCapture:
    """The target."""
    return OverlapInCapture(device, seed)
