"""Where memory lies."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Extent:
    """A stretch of a live allocation."""

    address: int
    bytes: int

    def meets(self, other: Extent) -> bool:
        """Whether some byte lies in both."""
        return self.address < other.address + other.bytes and other.address < self.address + self.bytes
