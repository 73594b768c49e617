"""The same engine with no way to capture anew: eager against replay is all there is.

Eager on an exact batch and a replay on a padded one may differ by rounding, and there is no graph captured now to
show that nothing is frozen. A careless tool demands bitwise equality all the same.
"""

from __future__ import annotations

from .paged_engine import PagedEngine


class PlainEngine(PagedEngine):
    """The required members and `reserved`: not even `batch_sizes`."""

    def __init__(self, device: str, seed: int) -> None:
        super().__init__(device, seed, buckets=(1, 2, 4, 8))
        del self.batch_sizes


def target(device: str, seed: int = 0) -> PlainEngine:
    """The target."""
    return PlainEngine(device, seed)
