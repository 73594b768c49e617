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
        live = {path: live_part(b.outputs[path], value.shape, rows, size) for path, value in a.outputs.items()}
        alike = [path for path, value in a.outputs.items() if live[path].shape == value.shape]
        differences = compare({path: live[path] for path in alike}, {path: a.outputs[path] for path in alike})
        if differences:
            return all(difference.level is Level.SMALL and not difference.integral for difference in differences)
    return False


def live_part(wide: torch.Tensor, shape: Sequence[int], rows: int, size: int) -> torch.Tensor:
    """`wide` without padding: dimensions that are to `shape`'s as `size` is to `rows` are cut to those."""
    if wide.dim() != len(shape):
        return wide
    sizes = zip(wide.shape, shape, strict=True)
    return wide[tuple(slice(b) if a * rows == b * size else slice(None) for a, b in sizes)]
