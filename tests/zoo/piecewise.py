"""Two graphs a step with eager attention between them, which reads the static outputs of the first at once.

Attention branches on the lengths and reads them on the host, which is fine outside a graph. A careless tool wants one
graph a step, reports the host read, or calls the first graph's outputs overwritten while they are in use.
"""

from __future__ import annotations

import torch

from .capturing import bucket_of, capture
from .paged import HIDDEN, ROWS, schedule
from .paged_engine import PagedEngine


class PiecewiseEngine(PagedEngine):
    """Projection and head are graphs, cache and attention are not."""

    def capture_all(self) -> None:
        """Two graphs a bucket."""
        self.attended = torch.zeros(ROWS, HIDDEN, device=self.device)
        self.pieces = {}
        for bucket in self.buckets:
            rows, attended = self.static.rows(bucket), self.attended[:bucket]
            project = capture(lambda rows=rows: self.decoder.project(rows))  # type: ignore[misc]
            choose = capture(lambda attended=attended: self.decoder.choose(attended))  # type: ignore[misc]
            self.pieces[bucket] = (project, choose)

    def step(self, i: int, n: int) -> dict[str, torch.Tensor]:
        """Graph, eager, graph."""
        batch = schedule(i, n, self.device)
        if not self.use_graphs:
            return self.decoder(batch)
        (project, projected), (choose, chosen) = self.pieces[bucket_of(n, self.buckets)]
        self.static.load(batch)
        project.replay()
        x, q, k, v = (tensor[:n] for tensor in projected)
        self.decoder.k_cache[batch.slot_mapping] = k
        self.decoder.v_cache[batch.slot_mapping] = v
        long = int(batch.seq_lens.max()) > 1
        # With one token each there is nothing to attend to but itself.
        self.attended[:n].copy_(x + (self.decoder.attend(q, batch) if long else v))
        choose.replay()
        return {name: tensor[:n].clone() for name, tensor in chosen.items()}


def target(device: str, seed: int = 0) -> PiecewiseEngine:
    """The target."""
    return PiecewiseEngine(device, seed)
