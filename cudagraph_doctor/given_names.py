"""Names that the user wrote (in `--rtol`, in `reserved()`) against those that there are: an unknown one does nothing.

Asked by the check as soon as there are outputs and tensors to ask about.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping

import torch

from cudagraph_doctor.errors import TargetError, UsageError
from cudagraph_doctor.spec import near
from cudagraph_doctor.walk import Walk

_LISTED = 12


def check_tolerances(names: Iterable[str], outputs: Iterable[str]) -> None:
    """Are the outputs that tolerances were given for put out? Raises UsageError, naming those that are.

    Args:
        names: of outputs, as in `Settings.tolerances`; "" is all of them.
        outputs: paths of what a step puts out.
    """
    known = list(outputs)
    for name in names:
        if name and name not in known:
            raise UsageError(
                f'--rtol or --atol names the output "{name}", which the step does not put out.{near(name, known)}',
                seen=f"it puts out {_listed(known)}",
                fix="Name one of these, or give the bound alone, for all outputs: --rtol 0.01.",
            )


def reserved_rows(reserved: Mapping[str, Iterable[int]], around: Walk) -> list[tuple[torch.Tensor, list[int]]]:
    """The tensors that `reserved()` names, by whichever of their paths, with their rows.

    Args:
        reserved: what the target's `reserved()` returned: rows of dimension 0 by name.
        around: all that has a name.

    Raises TargetError, naming what there is, if there is no such tensor or no such row in it.
    """
    found = []
    for name, given in reserved.items():
        tensor = around.find(str(name))
        if tensor is None:
            raise TargetError(
                f'reserved() names "{name}", and no tensor has that name.{near(str(name), around.paths)}',
                seen=f"tensors are {_listed(around.tensors)}",
                fix="Use a name that state() gives, or the path of attributes that leads to the tensor.",
            )
        shape = tuple(tensor.shape)
        rows = shape[0] if shape else 0
        try:
            numbers = [operator.index(row) for row in given]
        except TypeError:
            raise TargetError(
                f'reserved()["{name}"] is no list of row numbers.',
                seen=repr(given)[:80],
                fix=f'Return integers, such as {{"{name}": [{max(0, rows - 1)}]}}.',
            ) from None
        wrong = [row for row in numbers if not 0 <= row < rows]
        if wrong:
            raise TargetError(
                f'reserved()["{name}"] names the row {wrong[0]}, which the tensor does not have.',
                seen=f"its shape is {shape}" + (f", so its rows are 0 to {rows - 1}" if rows else ""),
                fix="Name rows of dimension 0 (a slot of a cache of blocks lies in the row slot // block_size).",
            )
        found.append((tensor, numbers))
    return found


def _listed(names: Iterable[str]) -> str:
    shown = [name or "one output without a name" for name in names]
    more = f" and {len(shown) - _LISTED} more" if len(shown) > _LISTED else ""
    return (", ".join(shown[:_LISTED]) or "none") + more
