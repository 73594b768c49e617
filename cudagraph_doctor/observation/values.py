"""What operations gave in the dry run, handed out again in their place while a capture is open.

Tensors are copied when they are kept and again when they are given: whoever gets them may write them. Giving issues
nothing but device-to-device and host-to-host copies, which a capture takes.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class _Value:
    result: Any
    written: tuple[torch.Tensor, ...]
    same: int | None
    """The result is this one of the tensors that were written."""


class Kept:
    """Results and side effects of operations, by key."""

    def __init__(self) -> None:
        self._values: dict[Hashable, _Value] = {}

    def __contains__(self, key: Hashable) -> bool:
        return key in self._values

    def keep(self, key: Hashable, result: Any, written: Sequence[torch.Tensor] = ()) -> None:
        """Remember what an operation returned and what it left in the tensors that it wrote."""
        same = next((at for at, tensor in enumerate(written) if tensor is result), None)
        with torch.no_grad():
            copies = tuple(tensor.detach().clone() for tensor in written)
            self._values[key] = _Value(None if same is not None else _copied(result), copies, same)

    def give(self, key: Hashable, written: Sequence[torch.Tensor] = ()) -> Any:
        """The result again; the tensors are written as they were then. Raises KeyError if nothing was kept."""
        value = self._values[key]
        with torch.no_grad():
            for tensor, copy in zip(written, value.written, strict=True):
                if tensor.shape == copy.shape:
                    tensor.detach().copy_(copy, non_blocking=True)
            return written[value.same] if value.same is not None else _copied(value.result)


def _copied(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(_copied(item) for item in value)
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    return value
