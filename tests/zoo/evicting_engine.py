"""An engine that keeps one graph: a step of another bucket throws it away and captures a new one, during serving.

Pools are freed and reused, so addresses in graphs come and go. A careless tool holds on to the graph that it saw
first, reports its freed memory, or takes each capture in a step for a miss.
"""

from __future__ import annotations

import torch

from .capturing import bucket_of, capture
from .paged import padding, schedule
from .paged_engine import PagedEngine


class EvictingEngine(PagedEngine):
    """Captures on padding, then stages and replays."""

    def capture_all(self) -> None:
        """Nothing at start-up."""
        self.captured = {}

    def step(self, i: int, n: int) -> dict[str, torch.Tensor]:
        """Make sure that the one graph is the right one."""
        bucket = bucket_of(n, self.buckets)
        if self.use_graphs and bucket not in self.captured:
            torch.cuda.synchronize()
            self.captured.clear()
            self.static.load(padding(0, self.device))
            self.captured[bucket] = capture(lambda: self.decoder(self.static.rows(bucket)))
        return self.run(schedule(i, n, self.device))


def target(device: str, seed: int = 0) -> EvictingEngine:
    """The target."""
    return EvictingEngine(device, seed)
