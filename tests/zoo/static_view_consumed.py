"""The user's runner returns views of its static outputs, and its caller is done with them before the next replay.

A careless tool keeps what the runner returned, sees it change at the next replay, and reports an overwritten output
(or, worse, compares a step with the values of the next one).
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from .capturing import bucket_of, capture
from .paged import Batch, PagedLoop, padding


class ViewRunner(PagedLoop):
    """Brings its own runner, captured at start-up."""

    def graphed(self) -> Callable[[Batch], dict[str, torch.Tensor]]:
        """A runner over its own static inputs; no clone of what it returns."""
        static = padding(max(self.buckets), self.device)
        captured = {}
        for bucket in self.buckets:
            rows = static.rows(bucket)
            captured[bucket] = capture(lambda rows=rows: self.decoder(rows))  # type: ignore[misc]

        def run(fresh: Batch) -> dict[str, torch.Tensor]:
            n = len(fresh.tokens)
            graph, outputs = captured[bucket_of(n, self.buckets)]
            static.load(fresh)
            graph.replay()
            return {name: tensor[:n] for name, tensor in outputs.items()}

        return run


def target(device: str, seed: int = 0) -> ViewRunner:
    """The target."""
    return ViewRunner(device, seed)
