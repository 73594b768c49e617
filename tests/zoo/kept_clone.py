"""The hidden state of a step is kept for the next one, as a clone, in an attribute that is another tensor each step.

A careless tool sees `engine.last` rebound every step, and a graph that reads other memory; it reads the static copy
that the step refreshes from `last`.
"""

from __future__ import annotations

import torch

from .capturing import capture

HIDDEN, WIDEST = 16, 4


class Recurrent:
    """A recurrent cell for a fixed number of rows; steps of fewer rows keep the others as they are."""

    def __init__(self, device: str, seed: int) -> None:
        self.batch_sizes = [1, 2, WIDEST]
        self.device = device
        self.use_graphs = True
        self.weight = torch.randn(HIDDEN, HIDDEN, generator=torch.Generator().manual_seed(seed)).to(device) / 4
        self.last = torch.zeros(WIDEST, HIDDEN, device=device)
        self.static_last, self.static_new = torch.zeros_like(self.last), torch.zeros_like(self.last)
        self.graph, self.output = capture(lambda: self.cell(self.static_last, self.static_new))

    def cell(self, last: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        """The step."""
        return (last @ self.weight + new).tanh()

    def reset(self) -> None:
        """In place: whoever watches `last` sees it change."""
        self.last.zero_()

    def graphs(self, on: bool) -> None:
        """The enforce-eager switch."""
        self.use_graphs = on

    def step(self, i: int, n: int) -> torch.Tensor:
        """Feeds `last` back."""
        new = torch.randn(WIDEST, HIDDEN, generator=torch.Generator().manual_seed(i)).to(self.device)
        if self.use_graphs:
            self.static_last.copy_(self.last)
            self.static_new.copy_(new)
            self.graph.replay()
            output = self.output.clone()
        else:
            output = self.cell(self.last, new)
        self.last = torch.cat([output[:n], self.last[n:]])
        return self.last[:n].clone()


def target(device: str, seed: int = 0) -> Recurrent:
    """The target."""
    return Recurrent(device, seed)
