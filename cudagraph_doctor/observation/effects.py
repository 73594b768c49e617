"""What operators do in an eager run of the captured body: how often each is run, what it gives, what it changes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from cudagraph_doctor.graph.backend import Backend
from cudagraph_doctor.graph.callsite import callsites
from cudagraph_doctor.graph.illegal import Kind, Place
from cudagraph_doctor.graph.operators import Operator, tensors_in
from cudagraph_doctor.observation.model import Operation
from cudagraph_doctor.observation.operators import DispatchWatch
from cudagraph_doctor.observation.records import Site, Window
from cudagraph_doctor.observation.session import Session


@dataclass(frozen=True, slots=True)
class Done:
    """One operator that was run: the how manieth from its place, in which capture."""

    capture: int
    site: Site
    ordinal: int


@dataclass(slots=True)
class Effects:
    """What one run showed. Only what launches something on the device counts."""

    operations: dict[Done, Operation] = field(default_factory=dict)
    """In the order of execution."""
    sums: dict[Done, torch.Tensor] = field(default_factory=dict)
    """The sum over all results, float64, shape ()."""
    changed: set[Done] = field(default_factory=set)
    """Of those that were looked at: what changed memory that is older than the capture."""
    read: set[Done] = field(default_factory=set)
    """Of those that were looked at: whose results others read, directly or through each other."""

    def result(self, done: Done) -> str:
        """The sum over its results, as text: two that are not a number are the same."""
        return str(float(self.sums[done])) if done in self.sums else ""


class EffectWatch(DispatchWatch):
    """Notes effects while a capture of the dry run is open, on the thread that captures.

    Args:
        session: knows about captures.
        backend: where it runs.
        looked_at: of what is done here, results and changes are followed: its memory is copied meanwhile.
    """

    def __init__(self, session: Session, backend: Backend, looked_at: Collection[Done] = ()) -> None:
        super().__init__(session, backend)
        self.effects = Effects()
        self._looked_at = looked_at
        self._counts: dict[tuple[int, Site], int] = {}
        self._capture = -1
        self._inside = False
        """Whether an operator is being run: what it launches is its own."""
        self._made: set[int] = set()
        """Addresses of memory that was made since the capture was opened."""
        self._from: dict[int, set[Done]] = {}
        """Address -> what was looked at and went into it."""

    def _perform(
        self, operator: Operator, call: Callable[[], Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        window = self._session.window
        assert window is not None
        if window.index != self._capture:
            self._capture, self._made, self._from = window.index, set(), {}
        given = self._on_device(tensors_in((args, kwargs)))
        done = self._done(operator.name, window) if operator.launches else None
        older = [t for t in self._on_device(operator.written_tensors(args, kwargs)) if _address(t) not in self._made]
        before = [self._aside(t.clone) for t in older] if done in self._looked_at else []
        result = self._run(call)
        results = self._on_device(tensors_in(result))
        known = {_address(tensor) for tensor in given}
        self._made.update(_address(tensor) for tensor in results if _address(tensor) not in known)
        if done is not None and (given or results):
            self._note(done, given, results)
            if before and not self._aside(lambda: all(map(_same, before, older))):
                self.effects.changed.add(done)
        return result

    def launched(self, kernel: str) -> None:
        """A kernel is launched. One that no operator launches counts as one.

        What it reads and writes is not known: if it is looked at, others are taken to read what it gives.
        """
        window = self._session.window
        if window is None or self._inside or self._session.busy or window.thread != threading.get_ident():
            return
        if done := self._done(kernel, window):
            self.effects.operations[done] = self._session.operation(done.site, Kind.LEFT_OUT, done.ordinal)
            if done in self._looked_at:
                self.effects.read.add(done)

    def _run(self, call: Callable[[], Any]) -> Any:
        before, self._inside = self._inside, True
        try:
            return call()
        finally:
            self._inside = before

    def _done(self, name: str, window: Window) -> Done | None:
        """What is being done, if a line of the user's leads to it."""
        if not (lines := callsites()):
            return None
        site = Site(name, lines)
        ordinal = self._counts.get((window.index, site), 0)
        self._counts[window.index, site] = ordinal + 1
        window.position += 1
        return Done(window.index, site, ordinal)

    def _note(self, done: Done, given: list[torch.Tensor], results: list[torch.Tensor]) -> None:
        effects = self.effects
        effects.operations[done] = self._session.operation(done.site, Kind.LEFT_OUT, done.ordinal)
        summed = [tensor for tensor in results if tensor.layout is torch.strided]
        if summed:
            effects.sums[done] = self._aside(lambda: torch.stack(list(map(_sum, summed))).sum())
        behind = set().union(*(self._from.get(_address(tensor), ()) for tensor in given))
        if done in self._looked_at:
            for tensor in results:
                self._from.setdefault(_address(tensor), set()).update(behind | {done})
        else:
            effects.read |= behind

    def _aside(self, work: Callable[[], Any]) -> Any:
        """The result of work of ours."""
        with self._session.quiet(), self._backend.own_memory():
            return work()

    def _on_device(self, tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
        return [tensor for tensor in tensors if self._backend.place_of(tensor) is Place.DEVICE]


def _sum(tensor: torch.Tensor) -> torch.Tensor:
    real = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    if real.is_floating_point() and real.itemsize == 1:  # there is no sum of these
        real = real.float()
    return real.sum(dtype=torch.float64)


def _same(old: torch.Tensor, new: torch.Tensor) -> bool:
    """Whether no number is another; what is not a number is the same as itself."""
    equal = (old == new) | ((old != old) & (new != new))
    return bool(equal.all())


def _address(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
