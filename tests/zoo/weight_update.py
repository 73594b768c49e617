"""Weights are updated in place between steps, as a trainer does to its rollout engine; graphs read the new ones.

A careless tool compares with outputs that it kept from before the update, or takes changed weight bytes for
corruption.
"""

from __future__ import annotations

from collections.abc import Callable

from .paged_engine import PagedEngine


class UpdatedEngine(PagedEngine):
    """Keeps copies of the first weights, for `reset()`."""

    def __init__(self, device: str, seed: int) -> None:
        super().__init__(device, seed)
        self.first = {name: getattr(self.decoder, name).clone() for name in ("embedding", "qkv", "head")}

    def reset(self) -> None:
        """Empty caches, first weights."""
        super().reset()
        for name, weight in self.first.items():
            getattr(self.decoder, name).copy_(weight)

    def update_weights(self) -> None:
        """One optimizer step, so to speak."""
        self.decoder.qkv.mul_(0.75)
        self.decoder.head.add_(0.125)

    def events(self) -> dict[str, Callable[[], None]]:
        """What may happen between steps."""
        return {"weight update": self.update_weights}


def target(device: str, seed: int = 0) -> UpdatedEngine:
    """The target."""
    return UpdatedEngine(device, seed)
