"""Captured on dummy values that no step ever has: all zeros, lengths of one, as most engines capture.

A careless tool takes the captured values for a step's and reports every static input as changed since; one that
compares the capture's own outputs with eager finds them wrong, which nobody ever reads.
"""

from __future__ import annotations

from .paged import Batch, PagedLoop, padding


class DummyCapture(PagedLoop):
    """`at_capture` gives padding of length one, so that nothing is NaN."""

    def at_capture(self, bucket: int) -> Batch:
        """Padding that reads one slot."""
        dummy = padding(bucket, self.device)
        dummy.seq_lens.fill_(1)
        return dummy


def target(device: str, seed: int = 0) -> DummyCapture:
    """The target."""
    return DummyCapture(device, seed)
