"""Copies between pinned memory and the device, made to come out as if each had run when it was issued.

A copy to the device gets a buffer of its own, which the host cannot rewrite too early; behind a copy to the host, the
host waits. The device is never waited for as a whole, which would mend any order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from cudagraph_doctor.findings import Location
from cudagraph_doctor.graph.callsite import callsite


@dataclass(frozen=True, slots=True)
class Copied:
    """A buffer of the host, and which way it is copied."""

    name: str
    """By path; "" for one that nobody keeps, which its line tells from others."""
    to_host: bool
    line: Location | None
    """The user's line that issues the copies."""


class AtOnce(TorchDispatchMode):
    """Has copies between pinned memory and the device come out as if they had run when they were issued.

    Args:
        only: the copies to mend; None: all.
        names: address of a host storage -> its path.
        wait: has the host wait for the stream that it issues to.
    """

    def __init__(
        self,
        only: Sequence[Copied] | None = None,
        names: Callable[[int], str] = lambda _address: "",
        wait: Callable[[], None] = lambda: torch.cuda.current_stream().synchronize(),
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call, unused-ignore]
        self.mended: dict[Copied, int] = {}
        """In the order met, with the address of the host's storage."""
        self.written: dict[int, Location] = {}
        """Address of a storage of the host -> the user's line that wrote to it last."""
        self._only = only
        self._names = names
        self._wait = wait

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator; mend it if it is such a copy."""
        kwargs = kwargs or {}
        if func is torch.ops.aten.copy_.default:
            return self._copy(func, args[0].device, args[1], args, kwargs)
        if func is torch.ops.aten._to_copy.default and kwargs.get("device") is not None:
            return self._copy(func, torch.device(kwargs["device"]), args[0], args, kwargs)
        if func._schema.name.endswith("_") and isinstance(args[0], torch.Tensor):
            self._note(args[0])
        return func(*args, **kwargs)

    def _note(self, written: torch.Tensor) -> None:
        line = callsite() if written.device.type == "cpu" else None
        if line is not None:
            self.written[written.untyped_storage().data_ptr()] = line

    def _copy(self, func: Any, to: torch.device, source: torch.Tensor, args: Any, kwargs: dict[str, Any]) -> Any:
        if to.type == source.device.type:
            self._note(args[0])
            return func(*args, **kwargs)
        if to.type == "cpu":
            result = func(*args, **kwargs)
            if self._is_to_be_mended(result, to_host=True):
                self._wait()
            return result
        if not self._is_to_be_mended(source, to_host=False):
            return func(*args, **kwargs)
        own = source.clone().pin_memory()  # torch keeps it until the copy has run
        return func(*(own if arg is source else arg for arg in args), **kwargs)

    def _is_to_be_mended(self, host: torch.Tensor, to_host: bool) -> bool:
        if not host.is_pinned() or torch.cuda.is_current_stream_capturing():
            return False
        address = host.untyped_storage().data_ptr()
        copied = Copied(self._names(address), to_host, callsite())
        if self._only is not None and copied not in self._only:
            return False
        self.mended[copied] = address
        return True
