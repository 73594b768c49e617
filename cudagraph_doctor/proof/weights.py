"""Which tensors are weights? Asked here by all who call one so: what a step is given, or keeps, is none.

A parameter is one by its type. Of all else steps decide: a floating-point tensor (a transposed copy, a table) is one
if no step writes into it, and steps leave it in its place.
"""

from __future__ import annotations

import torch

from cudagraph_doctor.proof.arms import Arms, Discovery, span
from cudagraph_doctor.proof.extent import Extent
from cudagraph_doctor.walk import Walk

_SELDOM = 1
"""So many steps of a pass may put another tensor in a weight's place: there are updates. What belongs to a step is
replaced again and again."""


def weight_names(arms: Arms) -> set[str]:
    """Names of all weights, as of now."""
    around = arms.look_around()
    return {name for name, tensor in around.tensors.items() if is_weight(arms.found, around, name, tensor)}


def is_weight(found: Discovery, around: Walk, path: str, tensor: torch.Tensor) -> bool:
    """Whether the tensor at a path is one.

    Args:
        found: what trial passes showed of the target.
        around: what other paths lead to it.
        path: any of its paths.
        tensor: what it leads to now.
    """
    if type(tensor) is torch.nn.Parameter or tensor.requires_grad or isinstance(tensor, torch.nn.Parameter):
        return True
    if not tensor.dtype.is_floating_point or not tensor.dim():
        return False
    name = around.aliases.get(path, path)
    often = (other for other, times in found.replaced.items() if times > _SELDOM)
    if any(other == path or around.aliases.get(other, other) == name for other in often):
        return False
    own = Extent(*span(tensor))
    return not any(own.meets(extent) for extent in (*found.state, *found.touched))
