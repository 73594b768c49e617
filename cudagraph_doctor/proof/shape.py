"""Two eager runs of one step at two batch sizes: is it rounding where they first part?

A kernel may add in another order for another number of rows. That is small where it arises, and becomes large where
the step decides by it: a threshold, a sort, a router of experts. A step that counts its rows parts by much at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from cudagraph_doctor import tree
from cudagraph_doctor.proof.compare import Level, compare


@dataclass(slots=True)
class Seen:
    """What one operator put out: copies."""

    operator: str
    outputs: dict[str, Any] = field(default_factory=dict)


class Outputs(TorchDispatchMode):
    """Keeps what every operator puts out, up to `limit` bytes."""

    def __init__(self, limit: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call, unused-ignore]
        self.seen: list[Seen] = []
        self.complete = True
        self._left = limit

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator and copy what it gave."""
        result = func(*args, **(kwargs or {}))
        self._left -= sum(t.numel() * t.element_size() for t in tree.tensors(result).values())
        self.complete &= self._left >= 0
        if self.complete:
            self.seen.append(Seen(str(func), {p: t.detach().clone() for p, t in tree.tensors(result).items()}))
        return result


def parts_by_rounding(exact: Sequence[Seen], wide: Sequence[Seen], rows: int, size: int) -> bool:
    """Whether the first operator whose live rows differ differs by rounding. False if the two ran other operators.

    Args:
        exact: of a run on `rows` rows.
        wide: of a run on `size` rows, the first `rows` of them live.
        rows: number of live rows.
        size: batch size of the wide run.
    """
    for a, b in zip_longest(exact, wide):
        if a is None or b is None or a.operator != b.operator:
            return False
        live = {path: _live(b.outputs[path], value, rows, size) for path, value in a.outputs.items()}
        differences = compare({p: v for p, v in live.items() if v.shape == a.outputs[p].shape}, _alike(a, live))
        if differences:
            return all(difference.level is Level.SMALL and not difference.integral for difference in differences)
    return False


def _alike(a: Seen, live: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {path: value for path, value in a.outputs.items() if value.shape == live[path].shape}


def _live(wide: torch.Tensor, exact: torch.Tensor, rows: int, size: int) -> torch.Tensor:
    """The part of `wide` that belongs to live rows, wherever the rows lie among the dimensions."""
    if wide.dim() != exact.dim():
        return wide
    sizes = zip(wide.shape, exact.shape, strict=True)
    return wide[tuple(slice(b) if a * rows == b * size else slice(None) for a, b in sizes)]
