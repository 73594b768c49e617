"""A sound engine around the paged decoder; EngineTargets of the zoo change one thing in it. Not a target itself."""

from __future__ import annotations

import torch

from .capturing import bucket_of, capture
from .paged import ROWS, Batch, PagedDecoder, padding, schedule


class PagedEngine:
    """Captures one graph a bucket at start-up, all over one set of wide static inputs and in one pool."""

    def __init__(self, device: str, seed: int, buckets: tuple[int, ...] = (1, 2, 4)) -> None:
        self.buckets = list(buckets)
        self.batch_sizes = [1, 2, 3, 4]
        self.device = device
        self.decoder = PagedDecoder(device, seed)
        self.static = self.static_batch()
        self.use_graphs = True
        self.capture_all()

    def static_batch(self) -> Batch:
        """The static inputs of the widest batch."""
        return padding(ROWS, self.device)

    def capture_all(self) -> None:
        """Capture every bucket on padding, so that warm-up and capture touch no live cache slot."""
        self.static.load(padding(0, self.device))
        pool = torch.cuda.graph_pool_handle()
        self.captured = {}
        for bucket in reversed(self.buckets):
            rows = self.static.rows(bucket)
            self.captured[bucket] = capture(lambda rows=rows: self.decoder(rows), pool)  # type: ignore[misc]

    def reset(self) -> None:
        """Empty caches."""
        self.decoder.reset()

    def reserved(self) -> dict[str, list[int]]:
        """The row of the caches that padding writes."""
        return {f"decoder.{name}": rows for name, rows in self.decoder.reserved().items()}

    def graphs(self, on: bool) -> None:
        """The enforce-eager switch."""
        self.use_graphs = on

    def step(self, i: int, n: int) -> dict[str, torch.Tensor]:
        """Decode step `i` on `n` rows."""
        return self.run(schedule(i, n, self.device))

    def run(self, batch: Batch) -> dict[str, torch.Tensor]:
        """Eager or staged and replayed; the caller owns what it gets."""
        if not self.use_graphs:
            return self.decoder(batch)
        n = len(batch.tokens)
        graph, outputs = self.captured[bucket_of(n, self.buckets)]
        self.static.load(batch)
        graph.replay()
        return {name: tensor[:n].clone() for name, tensor in outputs.items()}
