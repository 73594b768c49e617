"""Keeps the doctor's own operators from whoever watches operators: they are no part of a step, only slower if seen."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch

from cudagraph_doctor.graph.operators import dispatches_itself


def unseen(*tensors: torch.Tensor) -> AbstractContextManager[object]:
    """Inside, no dispatch mode of this thread sees an operator: for reading memory, not for making what stays.

    The emulated backend does not know what is made inside for device memory.

    Args:
        tensors: what may be of any class. One with operators of its own needs the dispatcher: then all are seen.
    """
    if any(dispatches_itself(type(tensor)) for tensor in tensors):
        return nullcontext()
    return torch._C._DisableTorchDispatch()
