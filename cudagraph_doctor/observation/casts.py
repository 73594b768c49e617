"""Weights that autocast casts in one place and reads in another: what it keeps from before a capture to after it.

Autocast keeps the casts of weights until its outermost block is left. A capture inside of that block has no cast of
what was cast before: it reads memory that is freed when the block is left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from cudagraph_doctor.findings import Location
from cudagraph_doctor.graph.backend import Backend
from cudagraph_doctor.graph.callsite import Line, callsites
from cudagraph_doctor.graph.illegal import Place
from cudagraph_doctor.graph.operators import Operator, tensors_in
from cudagraph_doctor.observation.model import StrayCasts
from cudagraph_doctor.observation.operators import DispatchWatch
from cudagraph_doctor.observation.records import Window
from cudagraph_doctor.observation.session import Session


@dataclass(eq=False, slots=True)
class _Cast:
    """A weight that was cast."""

    memory: StorageWeakRef
    window: Window | None
    """The capture that was open, if one was."""
    replays: int
    """How many there had been."""
    line: Line | None
    module: str


@dataclass(frozen=True, slots=True)
class _Read:
    """The first time that a cast was read in a capture, or in none, and was not made there."""

    cast: _Cast
    window: Window | None
    line: Line | None


class CastWatch(DispatchWatch):
    """Notes in the dry run which weights autocast casts, and where the casts are read.

    Args:
        session: knows about captures.
        backend: where it runs.
    """

    def __init__(self, session: Session, backend: Backend) -> None:
        super().__init__(session, backend)
        self.from_before = within_autocast() and torch.is_autocast_cache_enabled()
        """Whether autocast was entered already, and keeps casts: what it had cast by then is not known."""
        self._casts: dict[int, _Cast] = {}
        """By identity of the storage, which is not given anew as long as there is a weak reference."""
        self._reads: dict[tuple[_Cast, int | None], _Read] = {}

    def _is_on(self) -> bool:
        """Always: what was cast outside of captures counts."""
        return True

    def _perform(
        self, operator: Operator, call: Callable[[], Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if operator.launches and self._casts:
            self._note_reads(args, kwargs)
        result = call()
        if self._is_autocasts(operator, args, result):
            self._note_cast(result)
        return result

    def strays(self) -> tuple[StrayCasts, ...]:
        """Casts that are read elsewhere than where they were made, one record for each line that captures, and fate.

        To be asked when the capturing code is through: what is still alive then is taken to be kept for good.
        """
        groups: dict[Any, list[_Read]] = {}
        for read in self._reads.values():
            fate = (read.window is not None, read.cast.window is not None, read.cast.memory.expired())
            groups.setdefault((read.window.opened_at if read.window else read.line, fate), []).append(read)
        return tuple(_told(reads, *fate) for (_, fate), reads in groups.items())

    def _is_autocasts(self, operator: Operator, args: tuple[Any, ...], result: Any) -> bool:
        """Whether this is a cast that autocast keeps; one that the user writes within autocast looks the same."""
        if operator.base != "aten::_to_copy" or not (within_autocast() and torch.is_autocast_cache_enabled()):
            return False
        weight = args[0]
        keeps = weight.dtype is torch.float32 and weight.requires_grad and weight.is_leaf and not weight._is_view()
        wanted = torch.get_autocast_dtype(result.device.type)
        return keeps and result.dtype is wanted and self._backend.place_of(result) is Place.DEVICE

    def _note_cast(self, result: torch.Tensor) -> None:
        session = self._session
        memory = StorageWeakRef(result.untyped_storage())
        self._casts[memory.cdata] = _Cast(memory, session.window, session.replays, _line(), session.module)

    def _note_reads(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        window = self._session.window
        at = window.index if window else None
        for tensor in tensors_in((args, kwargs)):
            if self._backend.place_of(tensor) is not Place.DEVICE:
                continue
            cast = self._casts.get(tensor.untyped_storage()._cdata)
            if cast is None or cast.window is window or (cast, at) in self._reads:
                continue
            if window is not None or self._session.replays == cast.replays:  # else a replay may have computed it
                self._reads[cast, at] = _Read(cast, window, _line())


def within_autocast() -> bool:
    """Whether an autocast was entered, be it one that is off: those inside of it keep what they cast until it ends."""
    torch.autocast_increment_nesting()
    return torch.autocast_decrement_nesting() > 0


def _told(reads: list[_Read], in_capture: bool, made_in_capture: bool, gone: bool) -> StrayCasts:
    casts = list(dict.fromkeys(read.cast for read in reads))
    window = reads[0].window
    return StrayCasts(
        read=_location(reads[0].line),
        made=_location(casts[0].line),
        opened=window.opened_at if window else None,
        modules=tuple(dict.fromkeys(cast.module for cast in casts if cast.module)),
        weights=len(casts),
        captures=len({read.window for read in reads}) if in_capture else 0,
        made_in_capture=made_in_capture,
        gone=gone,
    )


def _line() -> Line | None:
    return next(iter(callsites(1)), None)


def _location(line: Line | None) -> Location | None:
    return line.location() if line else None
