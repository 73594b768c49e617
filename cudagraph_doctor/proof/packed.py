"""Stretches of memory copied side by side: one operation for all of them, where each would take one of its own.

A step may write a row of each of a hundred caches. Copied one by one, what each launch costs is many times what the
bytes do.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch

from cudagraph_doctor.proof.extent import Extent

LINE = 256
"""Bytes. Each stretch begins at a multiple of it; behind its end, up to the next one, are zeros."""
_MOST = 1 << 24
"""Bytes that are copied at once; a longer stretch is alone. What is compared with a copy is copied, too, so this is
what that takes besides."""


@dataclass(frozen=True, slots=True)
class Group:
    """Copies of some stretches, side by side."""

    extents: tuple[Extent, ...]
    starts: tuple[int, ...]
    """The line that each begins with."""
    lines: torch.Tensor
    """uint8, shape (n, LINE)."""

    def lines_of(self, at: int) -> torch.Tensor:
        """Those of the stretch number `at`: a view."""
        return self.lines[self.starts[at] : self.starts[at] + lines_in(self.extents[at])]

    def bytes_of(self, at: int) -> torch.Tensor:
        """The bytes of the stretch number `at`: a view."""
        return self.lines_of(at).view(-1)[: self.extents[at].bytes]

    def extent_at(self, line: int) -> Extent:
        """The stretch that a line belongs to."""
        return self.extents[bisect_right(self.starts, line) - 1]


class Packed(Mapping[Extent, torch.Tensor]):
    """Copies of stretches of memory; looking one up gives a view of its copy, uint8 of shape (extent.bytes,).

    Args:
        parts: the stretches and their bytes, uint8 of that shape, on one device.
    """

    def __init__(self, parts: Mapping[Extent, torch.Tensor]) -> None:
        self.groups = [_group(some, [parts[extent] for extent in some]) for some in _divided(sorted(parts))]
        self.places = {
            e: (number, at) for number, group in enumerate(self.groups) for at, e in enumerate(group.extents)
        }
        """Where each stretch is: the number of its group, and its own there."""

    def __getitem__(self, extent: Extent) -> torch.Tensor:
        number, at = self.places[extent]
        return self.groups[number].bytes_of(at)

    def __contains__(self, extent: object) -> bool:
        return extent in self.places  # that of Mapping looks it up

    def __iter__(self) -> Iterator[Extent]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the copies take."""
        return sum(group.lines.nbytes for group in self.groups)


def packed(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """The parts, uint8 of shape (n,) each, as lines: a new tensor of shape (lines, LINE)."""
    if not parts:
        raise ValueError("nothing to pack")
    zeros = parts[0].new_zeros(LINE)
    padded = (piece for part in parts for piece in (part, zeros[: -len(part) % LINE]))
    return torch.cat([piece for piece in padded if len(piece)] or [zeros[:0]]).view(-1, LINE)


def lines_in(extent: Extent) -> int:
    """How many lines a stretch takes."""
    return -(-extent.bytes // LINE)


def _group(extents: tuple[Extent, ...], parts: Sequence[torch.Tensor]) -> Group:
    *starts, _ = accumulate(map(lines_in, extents), initial=0)
    return Group(extents, tuple(starts), packed(parts))


def _divided(extents: Sequence[Extent]) -> Iterator[tuple[Extent, ...]]:
    some, size = list[Extent](), 0
    for extent in extents:
        if some and size + extent.bytes > _MOST:
            yield tuple(some)
            some, size = [], 0
        some.append(extent)
        size += extent.bytes
    if some:
        yield tuple(some)
