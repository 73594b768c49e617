"""Functions and methods of torch that a capture forbids and no operator tells of, wrapped while the target runs.

What an operator tells as well is wrapped where the name says more ("Tensor.tolist" instead of a copy), or where the
emulation has no operator. A function mode would see fewer of them: neither streams nor events, nor the emulation.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from types import FrameType
from typing import Any

import torch

from cudagraph_doctor.graph.attributes import replaced
from cudagraph_doctor.graph.backend import Backend
from cudagraph_doctor.graph.callsite import callsites
from cudagraph_doctor.graph.illegal import Kind, Place
from cudagraph_doctor.graph.legality import Illegal
from cudagraph_doctor.observation.ledger import Fork
from cudagraph_doctor.observation.session import Session

Judge = Callable[[tuple[Any, ...], dict[str, Any], Any], Illegal | None]
"""From arguments, arguments by name and result."""

Row = tuple[Any, str, tuple[str, ...], Judge]
"""Owner, its name in reports, attributes, judge."""

_READING = ("item", "cpu", "tolist", *(f"__{kind}__" for kind in ("bool", "int", "float", "complex", "index", "repr")))
LEGACY_STREAM = 0
"""Handle of the default stream."""


@contextmanager
def wrapped(session: Session, backend: Backend, in_full: bool = True) -> Iterator[None]:
    """The calls are reported to the session inside the block, from all threads.

    Args:
        session: what is told.
        backend: where it runs.
        in_full: also those of tensors; else streams, events and the device only.
    """
    with ExitStack() as stack:
        for owner, spoken, names, judge in _waiting() + (_of_tensors(backend) if in_full else ()):
            attributes = {
                name: _wrapper(session, getattr(owner, name), f"{spoken}.{name}", judge)
                for name in names
                if hasattr(owner, name)
            }
            stack.enter_context(replaced(owner, attributes))
        streams = _StreamCalls(session)
        stack.enter_context(replaced(torch.cuda.Event, streams.of_events(torch.cuda.Event)))
        stack.enter_context(replaced(torch.cuda.Stream, streams.of_streams(torch.cuda.Stream)))
        stack.enter_context(replaced(torch.cuda.StreamContext, streams.of_contexts(torch.cuda.StreamContext)))
        stack.enter_context(replaced(torch.cuda, {"set_stream": streams.of_switch(torch.cuda.set_stream)}))
        yield


def _always(kind: Kind) -> Judge:
    return lambda args, kwargs, result: Illegal(kind)


def _of_generator(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Illegal:
    """Checkpointing reads the state by itself, to draw the same numbers when it computes anew."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_globals.get("__name__") != "torch.utils.checkpoint":
        frame = frame.f_back
    return Illegal(Kind.GENERATOR, detail="by checkpointing, with preserve_rng_state=True" if frame else "")


def _waiting() -> tuple[Row, ...]:
    stream, event = torch.cuda.Stream, torch.cuda.Event
    return (
        (torch.cuda, "torch.cuda", ("synchronize",), _always(Kind.SYNCHRONISATION)),
        (torch.accelerator, "torch.accelerator", ("synchronize",), _always(Kind.SYNCHRONISATION)),
        (stream, "Stream", ("synchronize",), _always(Kind.SYNCHRONISATION)),
        (event, "Event", ("synchronize", "elapsed_time"), _always(Kind.SYNCHRONISATION)),
        (stream, "Stream", ("query",), _always(Kind.QUERY)),
        (event, "Event", ("query",), _always(Kind.QUERY)),
    )


def _of_tensors(backend: Backend) -> tuple[Row, ...]:
    def reads(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Illegal | None:
        return Illegal(Kind.HOST_READ) if backend.place_of(args[0]) is Place.DEVICE else None

    def uploads(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Illegal | None:
        if result is not None and backend.place_of(result) is not Place.DEVICE:
            return None
        given = {backend.place_of(value) for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)}
        if Place.DEVICE in given:
            return None
        return Illegal(Kind.BLOCKING_COPY if Place.PINNED in given else Kind.PAGEABLE_COPY)

    def uploads_new(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Illegal | None:
        return uploads(args[1:], kwargs, result)  # the first one only tells device and dtype

    seeds = ("manual_seed", "seed", "get_rng_state", "set_rng_state")
    return (
        (torch, "torch", ("manual_seed", "seed"), _of_generator),
        (torch.cuda, "torch.cuda", (*seeds, "manual_seed_all", "seed_all", "initial_seed"), _of_generator),
        (torch.Tensor, "Tensor", _READING, reads),
        (torch.Tensor, "Tensor", ("new_tensor",), uploads_new),
        (torch.Tensor, "Tensor", ("pin_memory",), _always(Kind.PINNED_ALLOCATION)),
        (torch, "torch", ("tensor", "as_tensor", "asarray"), uploads),
    )


def _wrapper(session: Session, original: Callable[..., Any], name: str, judge: Judge) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if session.window is None:
            return original(*args, **kwargs)
        return session.perform(
            name,
            partial(original, *args, **kwargs),
            lambda result: judge(args, kwargs, result),
            returns_nothing=name.endswith(".synchronize"),
        )

    return call


class _StreamCalls:
    """Waits and records, for the ledger of the capture that is open."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._named = threading.local()

    def of_events(self, owner: Any) -> dict[str, Callable[..., Any]]:
        """`record` and `wait`, which all others come down to."""
        own_record, own_wait, session = owner.record, owner.wait, self._session

        @functools.wraps(own_record)
        def record(event: Any, stream: Any = None) -> None:
            window, handle = session.window, self._handle(stream)
            if window is None or window.thread != threading.get_ident():
                own_record(event, stream)
            elif not window.ledger.captures(handle) and handle == LEGACY_STREAM:
                session.perform(
                    self._name("Event.record"),
                    partial(own_record, event, stream),
                    _tied_to_legacy,
                    returns_nothing=True,
                )
            else:
                own_record(event, stream)
                window.ledger.record(event, handle)

        @functools.wraps(own_wait)
        def wait(event: Any, stream: Any = None) -> None:
            window, handle = session.window, self._handle(stream)
            if window is None or window.thread != threading.get_ident():
                own_wait(event, stream)
            elif window.ledger.is_foreign(event, handle):
                session.perform(
                    self._name("Event.wait"), partial(own_wait, event, stream), _tied_to_others, returns_nothing=True
                )
            else:
                own_wait(event, stream)
                module = session.module
                window.ledger.wait(event, Fork(handle, window.position, callsites(), self._name("Event.wait"), module))

        return {"record": record, "wait": wait}

    def of_streams(self, owner: Any) -> dict[str, Callable[..., Any]]:
        """Calls that come down to those of events, so that these are called by the name that the user wrote."""
        return {name: self._naming(getattr(owner, name), f"Stream.{name}") for name in ("wait_stream", "wait_event")}

    def of_contexts(self, owner: Any) -> dict[str, Callable[..., Any]]:
        """`with torch.cuda.stream(...)`."""
        own_enter, session = owner.__enter__, self._session

        @functools.wraps(own_enter)
        def enter(context: Any) -> Any:
            if session.window is not None and context.stream is not None:
                session.switch(int(context.stream.cuda_stream))
            return own_enter(context)

        return {"__enter__": enter}

    def of_switch(self, own: Callable[..., Any]) -> Callable[..., Any]:
        """`torch.cuda.set_stream`."""

        @functools.wraps(own)
        def set_stream(stream: Any) -> Any:
            if self._session.window is not None and stream is not None:
                self._session.switch(int(stream.cuda_stream))
            return own(stream)

        return set_stream

    def _naming(self, original: Callable[..., Any], name: str) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(*args: Any) -> Any:
            before = getattr(self._named, "name", "")
            self._named.name = before or name
            try:
                return original(*args)
            finally:
                self._named.name = before

        return call

    def _name(self, otherwise: str) -> str:
        return getattr(self._named, "name", "") or otherwise

    def _handle(self, stream: Any) -> int:
        return self._session.current_stream() if stream is None else int(stream.cuda_stream)


def _tied_to_legacy(result: Any) -> Illegal:
    return Illegal(Kind.UNCAPTURED_WORK, detail="on the legacy default stream")


def _tied_to_others(result: Any) -> Illegal:
    return Illegal(Kind.UNCAPTURED_WORK, detail="on an event from outside of the capture")
