"""The copy from pinned host memory is a node of the graph; the host writes there once the last replay is over.

The source never moves, so the frozen host address is right. A careless tool reports a copy node that reads host
memory, or does not find "its" static input, since the truth is staged on the host.
"""

from __future__ import annotations

import torch

from .capturing import capture
from .paged import VOCAB

HIDDEN, WIDEST = 16, 4


class PinnedSource:
    """One graph for all batch sizes; tokens behind the batch are 0."""

    def __init__(self, device: str, seed: int) -> None:
        self.batch_sizes = [1, 3, WIDEST]
        self.device = device
        self.use_graphs = True
        self.embedding = torch.randn(VOCAB, HIDDEN, generator=torch.Generator().manual_seed(seed)).to(device)
        self.host_tokens = torch.zeros(WIDEST, dtype=torch.int64).pin_memory()
        self.tokens = torch.zeros(WIDEST, dtype=torch.int64, device=device)
        self.over = torch.cuda.Event()
        self.graph, self.output = capture(self.lookup)

    def lookup(self) -> torch.Tensor:
        """Copy in, look up."""
        self.tokens.copy_(self.host_tokens, non_blocking=True)
        return self.embedding[self.tokens].tanh()

    def reset(self) -> None:
        """No state."""

    def graphs(self, on: bool) -> None:
        """The enforce-eager switch."""
        self.use_graphs = on

    def step(self, i: int, n: int) -> torch.Tensor:
        """Wait for the last copy, write the tokens, run."""
        self.over.synchronize()
        self.host_tokens.zero_()
        self.host_tokens[:n] = torch.tensor([(7 * i + row) % VOCAB for row in range(n)])
        if self.use_graphs:
            self.graph.replay()
            result = self.output[:n].clone()
        else:
            result = self.lookup()[:n]
        self.over.record()
        return result


def target(device: str, seed: int = 0) -> PinnedSource:
    """The target."""
    return PinnedSource(device, seed)
