"""State after a run, kept as what of it is otherwise than in a snapshot.

Several results of a step are held side by side, and a step writes little of what is watched: a row of each cache. Whole
copies would be many times the memory that differs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch

from cudagraph_doctor.graph.unseen import unseen
from cudagraph_doctor.proof.extent import Extent
from cudagraph_doctor.proof.packed import Group, Packed, lines_in, packed
from cudagraph_doctor.proof.state import Memory


@dataclass(frozen=True, slots=True)
class _Lines:
    """What is otherwise than in one group of the snapshot."""

    numbers: list[int]
    """The lines that are, ascending."""
    index: torch.Tensor
    """The same on the device, int64."""
    held: torch.Tensor
    """Their bytes, shape (n, LINE)."""

    def unlike(self, other: _Lines) -> set[int]:
        """The lines that these two have with other bytes."""
        lines = set(self.numbers) ^ set(other.numbers)  # one of the two is as the snapshot there, the other is not
        both = sorted(set(self.numbers) & set(other.numbers))
        if both:
            mine, others = (one.held if len(both) == len(one.numbers) else one._of(both) for one in (self, other))
            with unseen():
                differ = (mine != others).any(1).nonzero().flatten().tolist()
            lines.update(both[at] for at in differ)
        return lines

    def _of(self, numbers: list[int]) -> torch.Tensor:
        positions = [bisect_left(self.numbers, number) for number in numbers]
        return self.held[torch.tensor(positions, device=self.held.device)]


class Changes(Mapping[Extent, torch.Tensor]):
    """The bytes of some extents as they are now; looking one up makes a copy.

    Args:
        memory: where they lie. Those whose allocation is gone are left out.
        extents: which.
        base: copies made earlier, which nobody may write to while these changes are in use. What is not among them is
            kept whole.
    """

    def __init__(self, memory: Memory, extents: Iterable[Extent], base: Packed) -> None:
        self._memory = memory
        self._base = base
        with memory.own_memory(), torch.no_grad():
            now = memory.views(extents)
            self._extents = dict.fromkeys(now)
            self._whole = Packed({extent: data for extent, data in now.items() if extent not in base})
            self._lines = [_differing(now, group) for group in base.groups]

    def __getitem__(self, extent: Extent) -> torch.Tensor:
        if extent not in self._extents:
            raise KeyError(extent)
        with self._memory.own_memory(), torch.no_grad():
            if extent in self._whole:
                return self._whole[extent].clone()
            number, at = self._base.places[extent]
            group, lines = self._base.groups[number], self._lines[number]
            whole, start = group.lines_of(at).clone(), group.starts[at]
            low, high = (bisect_left(lines.numbers, line) for line in (start, start + lines_in(extent)))
            if low < high:
                whole[lines.index[low:high] - start] = lines.held[low:high]
            return whole.view(-1)[: extent.bytes]

    def __contains__(self, extent: object) -> bool:
        return extent in self._extents  # that of Mapping looks it up

    def __iter__(self) -> Iterator[Extent]:
        return iter(self._extents)

    def __len__(self) -> int:
        return len(self._extents)

    @property
    def bytes_held(self) -> int:
        """Bytes of memory that this takes, the base left out."""
        return self._whole.nbytes + sum(one.index.nbytes + one.held.nbytes for one in self._lines)

    def unlike(self, other: Changes) -> list[Extent]:
        """As `unlike`, of two that have one base: nothing is put together for it."""
        pairs = zip(self._base.groups, self._lines, other._lines, strict=True)
        met = {group.extent_at(line) for group, mine, others in pairs for line in mine.unlike(others)}
        return sorted([*unlike(self._whole, other._whole), *(met & self.keys() & other.keys())])


def unlike(a: Mapping[Extent, torch.Tensor], b: Mapping[Extent, torch.Tensor]) -> list[Extent]:
    """The extents, of those that both have, whose bytes are not the same."""
    if isinstance(a, Changes) and isinstance(b, Changes) and a._base is b._base:
        return a.unlike(b)
    return sorted(extent for extent in a.keys() & b.keys() if not torch.equal(a[extent], b[extent]))


def same_state(a: Mapping[Extent, torch.Tensor], b: Mapping[Extent, torch.Tensor]) -> bool:
    """Whether two results left the same bytes."""
    return not unlike(a, b)


def _differing(now: Mapping[Extent, torch.Tensor], group: Group) -> _Lines:
    if not any(extent in now for extent in group.extents):
        return _Lines([], group.lines.new_empty(0, dtype=torch.int64), group.lines[:0])
    lines = packed([now.get(e, group.bytes_of(at)) for at, e in enumerate(group.extents)])
    with unseen():
        differs = (lines != group.lines).any(1)
    index = differs.nonzero().flatten()
    return _Lines(index.tolist(), index, lines[index])
