"""Captures in which memory that is handed out uninitialised holds zeros: `torch.empty` as if it were `torch.zeros`.

Where memory of an intermediate that is gone is handed out again within a captured step, what is read there before it is
written was left by an earlier kernel of the same replay: nothing written before the replay reaches it. So the zeros are
captured. They change nothing but what is read before it is written.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from cudagraph_doctor.graph.callsite import Line, callsites

_UNINITIALISED = frozenset(
    f"aten::{name}"
    for name in ("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided")
)


class Zeroed(TorchDispatchMode):
    """Zeros what operators hand out uninitialised.

    Args:
        only: the lines of the user's whose memory is zeroed; None: of all.
    """

    def __init__(self, only: frozenset[Line] | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call, unused-ignore]
        self.lines: dict[Line, None] = {}
        """The lines at which such memory was asked for, in order."""
        self._only = only

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator, and zero what it made."""
        result = func(*args, **(kwargs or {}))
        if func._schema.name in _UNINITIALISED and isinstance(result, torch.Tensor):
            line = next(iter(callsites(1)), None)
            if line is not None:
                self.lines[line] = None
                if self._only is None or line in self._only:
                    result.zero_()
        return result
