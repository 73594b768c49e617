"""Runs a target's capturing code once with all hooks in, dry or for real, and says who broke a capture that failed."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import dropwhile
from typing import TypeVar

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from cudagraph_doctor import blame
from cudagraph_doctor.errors import DoctorError, Inconclusive
from cudagraph_doctor.graph import capture_errors
from cudagraph_doctor.graph.backend import Backend, LiveGraph
from cudagraph_doctor.graph.cupti import Unavailable, failing_calls, kernel_launches
from cudagraph_doctor.graph.illegal import Kind
from cudagraph_doctor.graph.names import readable
from cudagraph_doctor.graph.origins import ModulePath
from cudagraph_doctor.graph.recovery import free_generators
from cudagraph_doctor.observation import cuda_errors
from cudagraph_doctor.observation.calls import wrapped
from cudagraph_doctor.observation.casts import CastWatch
from cudagraph_doctor.observation.effects import Done, Effects, EffectWatch
from cudagraph_doctor.observation.functions import IndexWatch
from cudagraph_doctor.observation.host_values import HostValues
from cudagraph_doctor.observation.model import Attempt, HostValue, Operation, Refusal, ToldBy
from cudagraph_doctor.observation.operators import OperatorWatch
from cudagraph_doctor.observation.players import Player, cause
from cudagraph_doctor.observation.records import FailedCall, Failure, Site, first_cause
from cudagraph_doctor.observation.session import Session
from cudagraph_doctor.observation.values import Kept
from cudagraph_doctor.observation.windows import Windows
from cudagraph_doctor.proof.state import Memory
from cudagraph_doctor.walk import walk

_Mode = TypeVar("_Mode", bound=TorchDispatchMode)


@dataclass(slots=True)
class Run:
    """What came of running the capturing code once."""

    session: Session
    modules: ModulePath
    attempt: Attempt
    failure: Failure | None = None
    lost_sources: list[Operation] = field(default_factory=list)
    """Copies from host memory that was gone at the end."""
    out_of_reach: str = ""
    """Why it ended early, if that says nothing about the target."""


class Runs:
    """Runs the capturing code as often as it is asked to, each time from the same beginning.

    Args:
        make_player: makes the player, given how to ask how many captures were begun in the present run.
        backend: its hooks are in.
    """

    def __init__(self, make_player: Callable[[Callable[[], int]], Player], backend: Backend) -> None:
        self._session: Session | None = None
        self.player = make_player(lambda: len(self._session.windows) if self._session else 0)
        self.attempts: list[Attempt] = []
        """All real captures."""
        self.done: set[Site] = set()
        """What watched captures took."""
        self.also: set[str] = set()
        """Names of operators that some capture has refused, though no table knows them."""
        self.watches_indices = False
        """Whether a function mode is in as well, when operators are watched."""
        self.out_of_reach: dict[str, None] = {}
        """What the emulation has no stand-in for, in the order in which it was met."""
        self.no_cupti = "nothing was captured" if backend.name == "cuda" else "there is no CUDA"
        """Why CUPTI did not tell, a clause."""
        self._backend = backend
        self._kept = Kept()

    def dry(self, watched: bool = True) -> Run:
        """The body eagerly, nothing captured. Raises what the target raises, or Inconclusive if it opens no capture."""
        session, modules, error = self._run(dry=True, watched=watched)
        if error is not None:
            raise error
        self._backend.synchronize()
        if not session.windows:
            raise Inconclusive(
                "the target captured nothing that could be watched",
                fix="capture with torch.cuda.graph or torch.cuda.CUDAGraph, in graphed() or recapture()",
            )
        # now: what is alive once the runner has captured stays alive as long as it serves
        gone = [source.operation for source in session.host_sources if source.is_gone()]
        return Run(session, modules, Attempt(watched), lost_sources=gone)

    def host_values(self) -> tuple[tuple[HostValue, ...], tuple[str, ...]]:
        """Host values that the body writes and others read, and all that it moves; in a dry run of their own."""
        host = HostValues(self.player.roots)
        found: list[HostValue] = []

        def look() -> None:
            found.extend(host.read_outside(self.player.eager_step, self.player.serve))

        *_, error = self._run(dry=True, watched=False, host=host, afterwards=look)
        if error is not None:
            raise error
        return tuple(found), tuple(host.moved)

    def effects(self, pretends: bool, looked_at: Collection[Done] = ()) -> Effects:
        """The body eagerly, with what its operators do.

        Args:
            pretends: tell it that it is captured.
            looked_at: see `EffectWatch`.
        """
        watch = self._watched_by(
            lambda session: EffectWatch(session, self._backend, looked_at),
            pretends,
            lambda watch: self._telling_of_launches(watch.launched),
        )
        return watch.effects

    def casts(self) -> CastWatch:
        """The body eagerly, with what autocast casts; asked for strays at once, it tells what outlived this."""
        return self._watched_by(lambda session: CastWatch(session, self._backend))

    def _watched_by(
        self,
        make: Callable[[Session], _Mode],
        pretends: bool = True,
        beside: Callable[[_Mode], AbstractContextManager[None]] = lambda watch: nullcontext(),
    ) -> _Mode:
        """The body eagerly under a mode of its own, and what is on beside that; the mode."""
        made: list[_Mode] = []

        @contextmanager
        def mode(session: Session) -> Iterator[None]:
            made.append(make(session))
            with beside(made[0]), made[0]:
                yield

        *_, error = self._run(dry=True, watched=False, pretends=pretends, mode=mode)
        if error is not None:
            raise error
        self._backend.synchronize()
        return made[0]

    @contextmanager
    def _telling_of_launches(self, heard: Callable[[str], None]) -> Iterator[None]:
        """`heard` is told of kernels by name, where CUPTI can be had."""
        with ExitStack() as stack:
            if self._backend.name == "cuda":
                try:
                    stack.enter_context(kernel_launches(lambda kernel: heard(readable(kernel))))
                except Unavailable as reason:
                    self.no_cupti = str(reason)
            yield

    def capture(self, *, watched: bool = True, served: tuple[Site, ...] = (), error_mode: str = "") -> Run:
        """Capture for real.

        Args:
            watched: watch operators, which may change what runs.
            served: what is given its value from the dry run.
            error_mode: capture error mode, whatever the target asks for.
        """
        session, modules, error = self._run(watched=watched, served=served, error_mode=error_mode)
        self.done |= set(session.done) if watched else set()
        nodes = tuple(window.nodes for window in session.windows)
        run = Run(session, modules, Attempt(watched, session.gave, nodes=nodes))
        if error is not None:
            _explain(run, error)
            session.forget_errors()  # their frames hold graphs and tensors
            self.out_of_reach |= {run.out_of_reach: None} if run.out_of_reach else {}
        self.attempts.append(run.attempt)
        return run

    def _run(
        self,
        *,
        dry: bool = False,
        watched: bool = True,
        served: tuple[Site, ...] = (),
        error_mode: str = "",
        host: HostValues | None = None,
        afterwards: Callable[[], None] | None = None,
        pretends: bool = True,
        mode: Callable[[Session], AbstractContextManager[None]] | None = None,
    ) -> tuple[Session, ModulePath, Exception | None]:
        """Run the capturing code once; what it raised. Everything is taken out and set back afterwards."""
        if self._backend.name == "cuda":
            gc.collect()  # graphs of earlier runs must not end in a capture of this one
        modules = ModulePath(walk(self.player.roots()).modules)
        session = Session(dry, watched, self._kept, modules, self._backend.capture_status, served, host, pretends)
        self._session = session
        memory = Memory(self._backend, self.player.generators)
        stream, random = torch.cuda.current_stream(), memory.random_state()

        def captured(live: LiveGraph) -> None:
            if session.window is not None:
                session.window.nodes = live.nodes

        def free() -> None:
            if not dry and self._backend.name == "cuda" and (error is not None or session.failures):
                free_generators(self.player.generators)

        error: Exception | None = None
        in_full = watched or mode is not None or not _compiles()
        with ExitStack() as stack:
            stack.callback(memory.set_random_state, random)
            stack.callback(torch.cuda.set_stream, stream)
            stack.callback(free)
            if in_full:
                stack.enter_context(modules.followed())
            stack.enter_context(self._backend.log.listening(captured=captured))
            stack.enter_context(Windows(session, self._backend, error_mode or self.player.error_mode).installed())
            stack.enter_context(wrapped(session, self._backend, in_full))
            if not dry and self._backend.name == "cuda":
                try:
                    stack.enter_context(failing_calls(session.call_failed))
                    self.no_cupti = ""
                except Unavailable as reason:
                    self.no_cupti = str(reason)
            if watched:
                stack.enter_context(OperatorWatch(session, self._backend, self.also))
            if mode is not None:
                stack.enter_context(mode(session))
            if watched and self.watches_indices:
                stack.enter_context(IndexWatch(session, self._backend))
            try:
                self.player.capture()
                if afterwards:
                    afterwards()
            except Exception as raised:
                error = cause(raised)
        return session, modules, error


def _compiles() -> bool:
    """Whether torch's compiler is about: it would trace hooks of modules, and what stands in for a tensor's methods."""
    return "torch._dynamo.eval_frame" in sys.modules


def _from_traceback(error: BaseException, told: BaseException, modules: ModulePath) -> Operation | None:
    """The user's line that is nearest to the first error: the one that a compiler raised inside may not come so far."""
    outwards = reversed(list(capture_errors.chain(error)))
    for link in dropwhile(lambda link: link is not told, outwards):
        if place := blame.user_location(link):
            running = [frame.f_locals.get("self") for _, frame, _ in blame.frames(link)]
            module = next((thing for thing in reversed(running) if isinstance(thing, torch.nn.Module)), None)
            path = modules.path_of(module) if module is not None else ""
            return Operation("", capture_errors.kind_of(told) or Kind.UNKNOWN, place, module=path)
    return None


def _same_line(one: Operation, other: Operation) -> bool:
    """Whether both are at one line of one file."""
    places = [(o.location.file, o.location.line) for o in (one, other) if o.location]
    return len(places) == 2 and places[0] == places[1]


def _call_behind(told: BaseException, failure: Failure | None, calls: list[FailedCall]) -> FailedCall | None:
    """The call of CUDA that the first error, `told`, comes from."""
    if capture_errors.is_of_torch(told):
        return None
    code = capture_errors.code_of(told)
    if failure is not None and failure.error is told and code not in (None, 901):
        # what failed before at another line did no harm: after it, this one would have been 901
        calls = [call for call in calls if call.code == code and call.is_within(failure)] or calls
    return first_cause(calls)


def _explain(run: Run, error: Exception) -> None:
    """Who broke the capture, from all that was noted."""
    if isinstance(error, DoctorError):  # a stand-in that does not go so far
        run.failure = next((failure for failure in run.session.failures if failure.error is error), None)
        run.out_of_reach = error.what if run.failure else ""
    first = capture_errors.first(error)
    if first is None and not run.out_of_reach:
        raise error
    told = first or error
    failure = run.failure or run.session.culprit(first)
    operation = failure.operation if failure else None
    by = failure.told_by if failure else ToldBy.TRACEBACK
    api = _call_behind(told, failure, run.session.failed_calls)
    if api is not None and api.operation.kind is not Kind.UNKNOWN:
        by = ToldBy.CUPTI
        if failure is None or operation is None or not operation.name or not api.is_within(failure):
            operation = api.operation
    traced = _from_traceback(error, told, run.modules)
    if operation is None or (operation.location is None and traced is not None):
        operation, by = traced, ToldBy.TRACEBACK
    elif traced and not (operation.module or operation.thread) and _same_line(traced, operation):
        operation = replace(operation, module=traced.module)  # no hook followed the modules: see `_compiles`
    if operation is not None and operation.kind is Kind.UNKNOWN:
        operation = replace(operation, kind=capture_errors.kind_of(told) or Kind.UNKNOWN)
    run.failure = failure and replace(failure, error=None)
    run.attempt = replace(
        run.attempt,
        refusal=Refusal(
            operation,
            by,
            cuda_errors.message(told),
            code=api.code if api else capture_errors.code_of(told),
            api=api.name if api else "",
            compiler=cuda_errors.compiler(told),
            plain=cuda_errors.shown(error),
        ),
    )
