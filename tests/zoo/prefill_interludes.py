"""Between decode steps a prefill runs eagerly and writes the cache of a request; decode graphs go on from there.

A careless tool expects state to change in decode steps only, or replays a decode step without the prefill before it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from .paged import LENGTH, VOCAB, schedule
from .paged_engine import PagedEngine


class PrefillEngine(PagedEngine):
    """Prefill is the decoder itself, token by token, for request 1."""

    def prefill(self) -> None:
        """Half a request's cache."""
        for position in range(LENGTH // 2):
            batch = schedule(position, 2, self.device).rows(2)
            batch.tokens = (batch.tokens * 3 + 1) % VOCAB
            self.decoder(batch)

    def idle(self) -> None:
        """Nothing to do for a while: the device runs dry."""
        torch.cuda.synchronize()

    def interludes(self) -> dict[str, Callable[[], None]]:
        """What serving does between decode steps."""
        return {"prefill": self.prefill, "idle": self.idle}


def target(device: str, seed: int = 0) -> PrefillEngine:
    """The target."""
    return PrefillEngine(device, seed)
