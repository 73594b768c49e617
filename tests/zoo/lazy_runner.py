"""The user's runner captures a bucket when it first meets it, in the middle of serving and on live values.

Its warm-up runs the live step once more than eager does; the step writes the same slots with the same values, so that
is harmless. A careless tool sees a capture where it expected a replay, or state that was written before the replay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .capturing import bucket_of, capture
from .paged import Batch, PagedLoop, padding


class LazyRunner(PagedLoop):
    """Brings its own runner, which starts with no graph at all."""

    def graphed(self) -> Callable[[Batch], dict[str, torch.Tensor]]:
        """A runner with an empty dict of graphs."""
        static = padding(max(self.buckets), self.device)
        captured: dict[int, Any] = {}

        def run(fresh: Batch) -> dict[str, torch.Tensor]:
            n = len(fresh.tokens)
            bucket = bucket_of(n, self.buckets)
            static.load(fresh)
            if bucket not in captured:
                captured[bucket] = capture(lambda: self.decoder(static.rows(bucket)))
            graph, outputs = captured[bucket]
            graph.replay()
            return {name: tensor[:n].clone() for name, tensor in outputs.items()}

        return run


def target(device: str, seed: int = 0) -> LazyRunner:
    """The target."""
    return LazyRunner(device, seed)
