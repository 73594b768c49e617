"""A real little engine that can capture all its graphs anew: wide static inputs, one pool, lookup by bucket.

`recapture()` replaces the graphs and moves the pool. A careless tool takes the new addresses for rebound buffers, or
lets the warm-up of a recapture write live slots that the step before had staged.
"""

from __future__ import annotations

from .paged_engine import PagedEngine


class RecapturingEngine(PagedEngine):
    """The zoo's engine, and the optional member."""

    def recapture(self) -> None:
        """As at start-up."""
        self.capture_all()


def target(device: str, seed: int = 0) -> RecapturingEngine:
    """The target."""
    return RecapturingEngine(device, seed)
