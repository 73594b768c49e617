"""Padding rows keep the positions and block tables of requests that left; nobody reads them.

Only slot_mapping and seq_lens are cleared after a shrink, as serving engines do. A careless tool compares whole
static inputs with padded truth and reports two stale buffers at every shrink; no live output and no state depends on
them.
"""

from __future__ import annotations

from .paged import Batch, PagedLoop, padding


class StaleTails(PagedLoop):
    """All buckets are views of one set of wide buffers, so that a wide batch leaves its tails to a narrow one."""

    def __init__(self, device: str, seed: int) -> None:
        super().__init__(device, seed)
        self.wide = padding(max(self.buckets), device)

    def static_inputs(self, bucket: int) -> Batch:
        """The leading rows of the wide buffers."""
        return self.wide.rows(bucket)

    def update(self, static: Batch, fresh: Batch) -> None:
        """Clears what has to be cleared, and leaves the rest as it is."""
        n = len(fresh.tokens)
        static.slot_mapping[n:] = -1
        static.seq_lens[n:] = 0
        for old, new in (
            (static.tokens, fresh.tokens),
            (static.positions, fresh.positions),
            (static.slot_mapping, fresh.slot_mapping),
            (static.block_table, fresh.block_table),
            (static.seq_lens, fresh.seq_lens),
        ):
            old[:n].copy_(new)


def target(device: str, seed: int = 0) -> StaleTails:
    """The target."""
    return StaleTails(device, seed)
