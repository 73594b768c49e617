"""State after a run, kept as what of it is otherwise than in a snapshot.

Several results of a step are held side by side, and a step writes little of what is watched: a row of each cache. Whole
copies would be many times the memory that differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch

from cudagraph_doctor.proof.state import Extent, Memory

LINE = 256
"""Bytes that are kept together if one of them differs."""


@dataclass(frozen=True, slots=True)
class _Lines:
    """What of one extent differs."""

    numbers: torch.Tensor
    """The lines that do, int64, shape (n,)."""
    held: torch.Tensor
    """Their bytes, shape (n, LINE)."""
    tail: torch.Tensor
    """The bytes behind the last whole line."""


class Changes(Mapping[Extent, torch.Tensor]):
    """The bytes of some extents as they are now; looking one up makes a copy.

    Args:
        memory: where they lie. Those whose allocation is gone are left out.
        extents: which.
        base: copies made earlier, which nobody may write to while these changes are in use. What is not among them is
            kept whole.
    """

    def __init__(self, memory: Memory, extents: Iterable[Extent], base: Mapping[Extent, torch.Tensor]) -> None:
        self._memory = memory
        self._base = base
        self._whole: dict[Extent, torch.Tensor] = {}
        self._lines: dict[Extent, _Lines] = {}
        with memory.own_memory(), torch.no_grad():
            for extent in sorted(extents):
                now = memory.view(extent)
                if now is not None and extent in base:
                    self._lines[extent] = _differing(now, base[extent])
                elif now is not None:
                    self._whole[extent] = now.clone()

    def __getitem__(self, extent: Extent) -> torch.Tensor:
        with self._memory.own_memory(), torch.no_grad():
            if extent in self._whole:
                return self._whole[extent].clone()
            lines, whole = self._lines[extent], self._base[extent].clone()
            front = len(whole) - len(lines.tail)
            whole[:front].view(-1, LINE)[lines.numbers] = lines.held
            whole[front:] = lines.tail
            return whole

    def __iter__(self) -> Iterator[Extent]:
        return iter(sorted([*self._whole, *self._lines]))

    def __len__(self) -> int:
        return len(self._whole) + len(self._lines)

    @property
    def bytes_held(self) -> int:
        """Bytes of memory that this takes, the base left out."""
        lines = ([one.numbers, one.held, one.tail] for one in self._lines.values())
        return sum(tensor.nbytes for some in [list(self._whole.values()), *lines] for tensor in some)


def _differing(now: torch.Tensor, base: torch.Tensor) -> _Lines:
    front = len(now) // LINE * LINE
    lines = now[:front].view(-1, LINE)
    numbers = (lines != base[:front].view(-1, LINE)).any(1).nonzero().flatten()
    return _Lines(numbers, lines[numbers], now[front:].clone())
