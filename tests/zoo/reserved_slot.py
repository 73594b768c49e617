"""Padding rows write a block that is theirs: block 0 of the cache, declared by `reserved()`.

A careless tool compares the whole cache after an eager step of 3 rows with the one after a replay of 4, and reports
that the fourth row wrote into the cache. It did, and into a slot that no request ever gets.
"""

from __future__ import annotations

import torch

from .paged import BLOCK, BLOCKS, HIDDEN, ROWS, Batch, PagedLoop, padding, schedule


class DummyBlock(PagedLoop):
    """As SGLang does it: slot 0 is the place for padding, requests get the blocks behind it."""

    def __init__(self, device: str, seed: int) -> None:
        super().__init__(device, seed)
        self.decoder.k_cache = torch.zeros(BLOCK * (1 + ROWS * BLOCKS), HIDDEN, device=device)
        self.decoder.v_cache = torch.zeros_like(self.decoder.k_cache)

    def next_inputs(self, step: int, n: int) -> Batch:
        """Requests' blocks start at 1."""
        batch = schedule(step, n, self.device)
        return Batch(batch.tokens, batch.positions, batch.slot_mapping + BLOCK, batch.block_table + 1, batch.seq_lens)

    def static_inputs(self, bucket: int) -> Batch:
        """Padding with slot 0."""
        static = padding(bucket, self.device)
        static.slot_mapping.zero_()
        return static

    def update(self, static: Batch, fresh: Batch) -> None:
        """Padding rows get slot 0 instead of -1."""
        static.load(fresh)
        static.slot_mapping.clamp_(min=0)

    def reserved(self) -> dict[str, list[int]]:
        """The dummy block."""
        return {name: list(range(BLOCK)) for name in self.state()}


def target(device: str, seed: int = 0) -> DummyBlock:
    """The target."""
    return DummyBlock(device, seed)
