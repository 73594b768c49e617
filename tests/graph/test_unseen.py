"""What the doctor does for itself reaches no dispatch mode."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from cudagraph_doctor.graph.unseen import unseen


class Seen(TorchDispatchMode):
    """Notes what reaches it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call, unused-ignore]
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


_Tensor: Any = torch.Tensor  # not all of its methods are typed


class Doubled(_Tensor):  # type: ignore[misc]
    """A class with operators of its own: it holds half of what it stands for."""

    def __new__(cls, of: torch.Tensor) -> Any:
        made = _Tensor._make_wrapper_subclass(cls, of.shape, dtype=of.dtype)
        made.of = of
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*tree_map(lambda value: value.of * 2 if isinstance(value, Doubled) else value, args))


def test_no_mode_sees_what_is_done_inside() -> None:
    x = torch.zeros(3)
    with Seen() as mode:
        with unseen(x, torch.nn.Parameter(x)):
            inside = (x + 1).view(torch.int32)
        outside = x * 2
    assert mode.names == ["aten.mul.Tensor"]
    assert inside.dtype is torch.int32 and not outside.any()


def test_a_class_with_operators_of_its_own_keeps_them() -> None:
    x = torch.ones(3)
    with Seen() as mode, unseen(x, Doubled(x)):
        assert (Doubled(x) + x).tolist() == [3, 3, 3]
    assert "aten.add.Tensor" in mode.names
