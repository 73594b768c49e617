"""Stands between a target and `CUDAGraph`: knows when a capture is open, and lets the dry run capture nothing.

Graphs that are captured while it is in are never replayed: in the dry run they are none, and otherwise they may hold
values of the dry run.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from cudagraph_doctor.graph.attributes import replaced
from cudagraph_doctor.graph.backend import Backend
from cudagraph_doctor.graph.illegal import Kind
from cudagraph_doctor.graph.legality import Illegal
from cudagraph_doctor.graph.recovery import forget_captured_events
from cudagraph_doctor.observation.casts import within_autocast
from cudagraph_doctor.observation.session import Session

_METHODS = ("capture_begin", "capture_end", "instantiate", "pool", "register_generator_state", "replay", "reset")


class Windows:
    """Tells the session of captures.

    Args:
        session: what is told.
        backend: where it runs.
        error_mode: the capture error mode to use whatever the target asks for; "" to use the target's.
    """

    def __init__(self, session: Session, backend: Backend, error_mode: str = "") -> None:
        self._session = session
        self._backend = backend
        self._error_mode = error_mode
        self._class: Any = torch.cuda.CUDAGraph
        self._own: dict[str, Callable[..., Any]] = {name: getattr(self._class, name) for name in _METHODS}
        self._context: Any = torch.cuda.graph
        self._enter, self._exit = self._context.__enter__, self._context.__exit__
        self._inline: weakref.WeakSet[Any] = weakref.WeakSet()
        """`torch.cuda.graph` contexts inside a capture, whose body goes into that one."""
        self._captured: weakref.WeakSet[Any] = weakref.WeakSet()
        """Graphs captured since this was installed, inner ones included."""
        self._part: weakref.WeakSet[Any] = weakref.WeakSet()
        """Graphs whose work went into the capture that is open."""
        self._inner: weakref.WeakSet[Any] = weakref.WeakSet()
        """Graphs whose capture was begun inside another."""
        self._pools: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        """For graphs of the dry run."""
        self._watched: list[weakref.ref[Any]] = []
        """All graphs that hold something, to hear when they end."""
        self._open: tuple[Any, Any] | None = None
        """The graph that captures, and its stream."""
        self._held: list[Any] | None = [] if session.keeps_graphs else None
        """All graphs that hold something, so that none ends; None: they live as long as the user wants."""

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Inside the block captures go through here. One that is left open is ended."""

        def method(name: str, through: Callable[..., Any]) -> Callable[..., Any]:
            def call(graph: Any, *args: Any, **kwargs: Any) -> Any:
                return through(graph, *args, **kwargs)

            call.__name__ = name
            return call

        methods = {name: method(name, getattr(self, name)) for name in self._own}
        with ExitStack() as stack:
            stack.enter_context(replaced(self._class, methods))
            context = {"__enter__": method("__enter__", self.enter), "__exit__": method("__exit__", self.exit)}
            stack.enter_context(replaced(self._context, context))
            if self._session.dry:
                stack.enter_context(self._backend.answering(self._answer))
            stack.callback(self._let_go)
            stack.callback(self._end_what_is_open)
            for live in self._backend.log.graphs:
                if (graph := live.graph()) is not None:
                    self._watch(graph)
            graph = None  # it lives as long as the user wants
            yield

    def _watch(self, graph: Any) -> None:
        self._watched.append(weakref.ref(graph, lambda gone: self._session.graph_ends()))
        if self._held is not None:
            self._held.append(graph)

    def _let_go(self) -> None:
        self._watched.clear()
        self._held = None

    def _answer(self) -> bool | None:
        """In the dry run, whether the current stream captures: what would be so in a capture."""
        window = self._session.window
        if window is None or window.thread != threading.get_ident():
            return None
        self._session.asked = True
        return window.ledger.captures(self._session.current_stream()) if self._session.pretends else None

    def _end_what_is_open(self) -> None:
        if self._open is None:
            return
        graph, stream = self._open
        self._session.close()
        before = torch.cuda.current_stream()
        torch.cuda.set_stream(stream)
        with contextlib.suppress(RuntimeError):
            self._own["capture_end"](graph)
        torch.cuda.set_stream(before)
        self._forget_events()

    def _forget_events(self) -> None:
        if self._backend.name == "cuda":
            forget_captured_events()

    # torch.cuda.graph

    def enter(self, context: Any) -> Any:
        """Begin a block; one inside a capture is an operation of that one, and no capture of its own."""
        session = self._session
        if session.window is None:
            return self._enter(context)
        really = False

        def enter() -> None:
            nonlocal really
            really = not session.dry
            if really:
                self._enter(context)

        session.perform("torch.cuda.graph", enter, _nested, returns_nothing=True)
        if not really:
            self._inline.add(context)
            self._captured.add(context.cuda_graph)
            self._part.add(context.cuda_graph)
            self._pools[context.cuda_graph] = torch.cuda.graph_pool_handle()

    def exit(self, context: Any, *exc: Any) -> Any:
        """End a block."""
        if context in self._inline:
            self._inline.discard(context)
            return None
        return self._exit(context, *exc)

    # methods of CUDAGraph

    def capture_begin(
        self, graph: Any, pool: Any = None, capture_error_mode: str = "global", *args: Any, **kwargs: Any
    ) -> None:
        """Open a capture; one inside another is an operation of that one."""
        session = self._session
        mode = self._error_mode or capture_error_mode

        def begin() -> None:
            if not session.dry:
                with session.quiet():  # torch fills the seed and offset of generators: not the user's work
                    self._own["capture_begin"](graph, pool, mode, *args, **kwargs)

        if session.window is not None:
            session.perform("CUDAGraph.capture_begin", begin, _nested, returns_nothing=True)
            self._inner.add(graph)
            return
        stream = torch.cuda.current_stream()
        self._part.clear()
        session.open(int(stream.cuda_stream), mode)
        session.autocast_around |= within_autocast()
        if session.dry:
            self._pools[graph] = torch.cuda.graph_pool_handle() if pool is None else pool
        try:
            begin()
        except Exception:
            session.close()
            raise
        if not session.dry:
            self._open = (graph, stream)

    def capture_end(self, graph: Any) -> None:
        """Close a capture."""
        session = self._session
        if graph in self._inner:
            self._inner.discard(graph)
            self._captured.add(graph)
            self._part.add(graph)
            return
        try:
            if not session.dry:
                self._open = None
                with session.quiet():
                    self._own["capture_end"](graph)
        except Exception as error:
            session.ended_badly(error)
            raise
        finally:
            session.close()
            if not session.dry:
                self._forget_events()
        self._captured.add(graph)
        self._watch(graph)

    def replay(self, graph: Any) -> None:
        """Nothing for a graph captured by now; inside a capture an operation of that one.

        A graph that was to be captured inside of the same capture does not count: its work is in that one already.
        """

        def replay() -> None:
            if not session.dry and graph not in self._captured:
                self._own["replay"](graph)

        session = self._session
        session.replays += 1
        if session.window is not None and graph in self._part:
            return
        if session.window is not None:
            session.perform("CUDAGraph.replay", replay, _nested, returns_nothing=True)
        elif graph not in self._captured:
            self._own["replay"](graph)

    def reset(self, graph: Any) -> None:
        """Drop what a graph holds; inside a capture an operation of that one."""

        def reset() -> None:
            self._captured.discard(graph)
            self._own["reset"](graph)

        self._session.perform(
            "CUDAGraph.reset", reset, lambda result: Illegal(Kind.DESTROYED_GRAPH), returns_nothing=True
        )

    def instantiate(self, graph: Any) -> None:
        """Nothing for a graph of the dry run."""
        if not (self._session.dry and graph in self._captured):
            self._own["instantiate"](graph)

    def register_generator_state(self, graph: Any, generator: Any) -> None:
        """The graph may draw from the generator."""
        self._session.register(generator)
        with self._session.quiet():
            self._own["register_generator_state"](graph, generator)

    def pool(self, graph: Any) -> Any:
        """The pool, also of a graph of the dry run."""
        return self._pools[graph] if graph in self._pools else self._own["pool"](graph)


def _nested(result: Any) -> Illegal:
    return Illegal(Kind.NESTED_CAPTURE)
