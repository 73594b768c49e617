"""The function mode: names copies that indexing by a list makes on CUDA, which no operator tells of.

The list becomes a tensor, and is copied to the device, below the dispatcher. A mode like this one changes what compiled
code runs, so it is only in once a capture has failed of such a copy. (`Tensor.__getitem__` cannot be wrapped as other
methods are: a class that had one does not go back to what it was.)
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from cudagraph_doctor.graph.backend import Backend
from cudagraph_doctor.graph.illegal import Kind, Place
from cudagraph_doctor.graph.legality import Illegal
from cudagraph_doctor.observation.session import Session

_NAMES = {torch.Tensor.__getitem__: "Tensor.__getitem__", torch.Tensor.__setitem__: "Tensor.__setitem__"}


class IndexWatch(TorchFunctionMode):
    """Deals with indexing by a list as with a whole call.

    Args:
        session: what is told.
        backend: where it runs.
    """

    def __init__(self, session: Session, backend: Backend) -> None:
        super().__init__()  # type: ignore[no-untyped-call, unused-ignore]
        self._session = session
        self._backend = backend

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one function of torch."""
        call = functools.partial(func, *args, **(kwargs or {}))
        name = _NAMES.get(func) if self._session.window is not None and not self._session.busy else None
        if name is None or not lists_in(args[1]) or self._backend.place_of(args[0]) is not Place.DEVICE:
            return call()
        return self._session.perform(name, call, _copies, args[:1] if func is torch.Tensor.__setitem__ else ())


def lists_in(index: Any) -> bool:
    """Whether an index has numbers in a list, a range or an array of numpy's."""
    if isinstance(index, tuple):
        return any(lists_in(part) for part in index)
    if type(index).__module__ == "numpy":
        return getattr(index, "ndim", 0) > 0
    return isinstance(index, range) or (
        isinstance(index, list) and any(isinstance(item, (int, list)) for item in index)
    )


def _copies(result: Any) -> Illegal:
    return Illegal(Kind.PAGEABLE_COPY, by_torch=True, detail="by a list")
