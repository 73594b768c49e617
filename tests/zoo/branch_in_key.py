"""The step branches on the length of the longest request, and the branch is part of the key of its graph.

Short batches skip half of the attention; there is a graph for either branch. A careless tool takes the bucket for the
key, and reports a frozen branch when it compares steps of one bucket and different keys.
"""

from __future__ import annotations

import torch

from .capturing import bucket_of, capture
from .paged import BLOCKS, LENGTH, ROWS, Batch, PagedDecoder, padding, schedule


class Branching:
    """Keys are (bucket, long)."""

    def __init__(self, device: str, seed: int) -> None:
        self.buckets = [1, 2, 4]
        self.batch_sizes = [1, 2, 3]
        self.device = device
        self.decoder = PagedDecoder(device, seed)
        self.use_graphs = True
        self.static = padding(ROWS, device)
        self.recapture()

    def decode(self, batch: Batch, long: bool) -> dict[str, torch.Tensor]:
        """Short requests have no block in the second half of their tables, so it is not even looked at."""
        if not long:
            table = batch.block_table.clone()
            table[:, BLOCKS // 2 :] = 0
            batch = Batch(batch.tokens, batch.positions, batch.slot_mapping, table, batch.seq_lens)
        outputs = self.decoder(batch)
        return outputs | {"gate": outputs["logits"].sigmoid() if long else outputs["logits"].tanh()}

    def recapture(self) -> None:
        """A graph for each bucket and branch, on padding."""
        self.static.load(padding(0, self.device))
        self.captured = {}
        for bucket in self.buckets:
            for long in (False, True):
                rows = self.static.rows(bucket)
                self.captured[bucket, long] = capture(lambda rows=rows, long=long: self.decode(rows, long))  # type: ignore[misc]

    def key(self, i: int, n: int) -> tuple[int, bool]:
        """Bucket and branch, from host numbers."""
        longest = max((i + 3 * row) % LENGTH for row in range(n)) + 1
        return bucket_of(n, self.buckets), longest > LENGTH // 2

    def step(self, i: int, n: int) -> dict[str, torch.Tensor]:
        """Decode step `i`."""
        bucket, long = self.key(i, n)
        batch = schedule(i, n, self.device)
        if not self.use_graphs:
            return self.decode(batch, long)
        graph, outputs = self.captured[bucket, long]
        self.static.load(batch)
        graph.replay()
        return {name: tensor[:n].clone() for name, tensor in outputs.items()}

    def reserved(self) -> dict[str, list[int]]:
        """The row of the caches that padding writes."""
        return {f"decoder.{name}": rows for name, rows in self.decoder.reserved().items()}

    def graphs(self, on: bool) -> None:
        """The enforce-eager switch."""
        self.use_graphs = on

    def reset(self) -> None:
        """Empty caches."""
        self.decoder.reset()


def target(device: str, seed: int = 0) -> Branching:
    """The target."""
    return Branching(device, seed)
