"""Inputs are staged on a copy stream into two buffers in turn while the last step still computes; all edges are there.

The copy waits until the replay that read its buffer is over, the replay waits for its copy. A careless tool runs on
the default stream alone and reads a buffer that is still being filled, or takes the alternating addresses for
rebinding.
"""

from __future__ import annotations

import torch

from .capturing import bucket_of, capture
from .paged import ROWS, padding, schedule
from .paged_engine import PagedEngine


class DoubleBuffer(PagedEngine):
    """One graph a bucket and buffer. The host runs ahead by as many steps as it likes."""

    pipelined = True

    def capture_all(self) -> None:
        """Both buffers, all buckets."""
        self.copies = torch.cuda.Stream()
        self.filled = [torch.cuda.Event() for _ in range(2)]
        self.free = [torch.cuda.Event() for _ in range(2)]
        self.buffers = [padding(ROWS, self.device) for _ in range(2)]
        self.by_buffer = {}
        for turn, static in enumerate(self.buffers):
            for bucket in self.buckets:
                rows = static.rows(bucket)
                self.by_buffer[turn, bucket] = capture(lambda rows=rows: self.decoder(rows))  # type: ignore[misc]

    def step(self, i: int, n: int) -> dict[str, torch.Tensor]:
        """Stage on the copy stream, replay on the current one."""
        if not self.use_graphs:
            return super().step(i, n)
        turn, main = i % 2, torch.cuda.current_stream()
        self.copies.wait_event(self.free[turn])
        with torch.cuda.stream(self.copies):
            self.buffers[turn].load(schedule(i, n, self.device))
            self.filled[turn].record(self.copies)
        main.wait_event(self.filled[turn])
        graph, outputs = self.by_buffer[turn, bucket_of(n, self.buckets)]
        graph.replay()
        self.free[turn].record(main)
        return {name: tensor[:n].clone() for name, tensor in outputs.items()}


def target(device: str, seed: int = 0) -> DoubleBuffer:
    """The target."""
    return DoubleBuffer(device, seed)
