"""The dispatch mode: sees every operator that runs while a capture is open, on the thread that captures."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from cudagraph_doctor.graph.backend import Backend
from cudagraph_doctor.graph.illegal import Kind, Place
from cudagraph_doctor.graph.legality import Illegal, copied_places, illegal
from cudagraph_doctor.graph.operators import Operator, Role, decomposed, dispatches_itself, learn, tensors_in
from cudagraph_doctor.observation.session import Session

learned = functools.cache(learn)

_LOOKED_AT = (Role.HOST_READ, Role.COPY, Role.INDEX, Role.PIN)


class DispatchWatch(TorchDispatchMode, ABC):
    """Sees the operators that the target runs, composite ones by their parts.

    Args:
        session: knows about captures, and whether the doctor is at work.
        backend: where it runs.
    """

    supports_higher_order_operators = True

    def __init__(self, session: Session, backend: Backend) -> None:
        super().__init__()  # type: ignore[no-untyped-call, unused-ignore]
        self._session = session
        self._backend = backend

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one operator."""
        kwargs = kwargs or {}
        if self._session.busy or not self._is_on():
            return func(*args, **kwargs)
        if types and any(dispatches_itself(kind) for kind in types):
            return NotImplemented
        operator = learned(func)
        if operator.composite:
            with self:
                return decomposed(operator, args, kwargs)
        return self._perform(operator, functools.partial(func, *args, **kwargs), args, kwargs)

    def _is_on(self) -> bool:
        """Whether operators are looked at: those of a capture."""
        return self._session.window is not None

    @abstractmethod
    def _perform(
        self, operator: Operator, call: Callable[[], Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run one that has no parts, by `call`."""


class OperatorWatch(DispatchWatch):
    """Deals with operators that may be illegal as with whole calls; notes on which stream the others run.

    Args:
        session: what is told.
        backend: where it runs.
        also: names of operators that are dealt with as if they might be illegal: some capture has refused them.
    """

    def __init__(self, session: Session, backend: Backend, also: Collection[str] = ()) -> None:
        super().__init__(session, backend)
        self._also = also

    def _perform(
        self, operator: Operator, call: Callable[[], Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        session = self._session
        if self._may_be_illegal(operator, args, kwargs):
            written = list(operator.written_tensors(args, kwargs))
            judge = functools.partial(self._judge, operator, args, kwargs)
            result = session.perform(operator.name, call, judge, written)
        else:
            result = session.issue(operator.name, call)
        self._note_stream(operator, args, kwargs, result)
        return result

    def _may_be_illegal(self, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Told from the arguments alone, so that the dry run and captures agree on it."""
        if operator.name in self._also:
            return True
        if operator.random and operator.argument("generator", args, kwargs) is not None:
            return True
        if operator.takes_device and kwargs.get("pin_memory"):
            return True
        if operator.role not in _LOOKED_AT:
            return False
        if operator.base == "aten::_to_copy":
            return kwargs.get("device") is not None
        place = self._backend.place_of
        if operator.base == "aten::copy_":
            return place(args[0]) is not place(args[1])
        return any(place(tensor) is Place.DEVICE for tensor in tensors_in((args, kwargs)))

    def _judge(self, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Illegal | None:
        place = self._backend.place_of
        if operator.role is Role.PIN or kwargs.get("pin_memory"):
            return Illegal(Kind.PINNED_ALLOCATION)
        output = next((place(tensor) for tensor in tensors_in(result)), Place.HOST)
        generator = operator.argument("generator", args, kwargs) if operator.random else None
        if generator is not None:
            return None if self._session.is_registered(generator) else Illegal(Kind.GENERATOR)
        found = illegal(operator, args, kwargs, output, place)
        if found is None and operator.role is Role.COPY:
            self._note_source(operator, args, output)
        if found is None and operator.name in self._also:
            return Illegal(Kind.LIBRARY_CALL)
        return found

    def _note_source(self, operator: Operator, args: tuple[Any, ...], output: Place) -> None:
        """A legal copy from page-locked memory: that has to outlive the graph."""
        source, target = copied_places(operator, args, output, self._backend.place_of)
        if source is Place.PINNED and target is Place.DEVICE:
            self._session.copies_from_host(operator.name, args[1 if operator.base == "aten::copy_" else 0])

    def _note_stream(self, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        session = self._session
        if session.window is None:
            return
        stream = session.current_stream()
        if session.is_captured(stream):
            if operator.launches:
                session.window.launches += 1
                session.window.ledger.work(stream)
            return
        reads = self._on_device(tensors_in((args, kwargs)))
        makes = self._on_device(tensors_in(result))
        if operator.launches and (reads or makes):
            session.went_outside(operator.name, stream, reads, makes)
        elif not reads:
            session.made_outside(makes)

    def _on_device(self, tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
        return [tensor for tensor in tensors if self._backend.place_of(tensor) is Place.DEVICE]
