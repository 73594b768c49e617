"""The order of things: a plain capture, a dry run, then captures that are watched, until everything illegal is named.

1. A capture as the target makes it, with nothing on that changes what runs.
2. If it fails: the body once eagerly and the same capture again. What fails no more was a first use.
3. A dry run under observation: captures capture nothing, so the body runs eagerly, and what looks illegal is kept with
   its values.
4. Watched captures. Each gives what is known to be illegal its value from the dry run, and fails at the next illegal
   operation. One that goes through ends it: what it took was legal, whatever it looked like.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import torch

from cudagraph_doctor import blame
from cudagraph_doctor.errors import DoctorError, Inconclusive
from cudagraph_doctor.findings import Location
from cudagraph_doctor.graph.backend import Backend, LiveGraph
from cudagraph_doctor.graph.cupti import Unavailable, failing_calls
from cudagraph_doctor.graph.illegal import Kind
from cudagraph_doctor.graph.origins import ModulePath
from cudagraph_doctor.observation import cuda_errors
from cudagraph_doctor.observation.calls import wrapped
from cudagraph_doctor.observation.host_values import HostValues
from cudagraph_doctor.observation.model import (
    Attempt,
    EmptyGraph,
    FirstUse,
    HostValue,
    Observation,
    Operation,
    Refusal,
    ToldBy,
)
from cudagraph_doctor.observation.operators import OperatorWatch
from cudagraph_doctor.observation.players import Player, cause
from cudagraph_doctor.observation.records import Failure, Site
from cudagraph_doctor.observation.session import Session
from cudagraph_doctor.observation.values import Kept
from cudagraph_doctor.observation.windows import Windows
from cudagraph_doctor.progress import Progress
from cudagraph_doctor.proof.state import Memory
from cudagraph_doctor.walk import walk

_MOST_CAPTURES = 64
"""Watched captures at most: each names one illegal operation."""
_WARMED = 2
"""Eager runs of the body after which a first use is tried again, one after the other."""


@dataclass(slots=True)
class _Run:
    """What came of running the capturing code once."""

    session: Session
    attempt: Attempt
    failure: Failure | None = None
    out_of_reach: str = ""
    """Why it ended early, if that says nothing about the target."""


class Observer:
    """Observes one target.

    Args:
        make_player: makes the player, given how to ask how many captures were begun in this run.
        backend: its hooks are in.
        progress: told what is done.
    """

    def __init__(
        self, make_player: Callable[[Callable[[], int]], Player], backend: Backend, progress: Progress
    ) -> None:
        self._session: Session | None = None
        self._player = make_player(lambda: len(self._session.windows) if self._session else 0)
        self._backend = backend
        self._progress = progress
        self._kept = Kept()
        self._also: set[str] = set()
        self._attempts: list[Attempt] = []
        self._done: set[Site] = set()
        self._no_cupti = "nothing was refused" if backend.name == "cuda" else "there is no CUDA"

    @torch.no_grad()
    def observe(self) -> Observation:
        """Everything, in order. Raises what the target raises when its step runs eagerly."""
        self._progress.stage("captures", 0)
        self._progress.advance("a capture as it is")
        plain = self._capture(watched=False)
        warmed = self._warmed(plain) if plain.attempt.refusal else []
        self._progress.advance("a dry run")
        dry = self._dry_run()
        refusals, last = self._confirm(dry)
        self._progress.advance("host values")
        host_values, moved = self._host_values()
        still = warmed[-1].attempt.refusal if warmed else plain.attempt.refusal
        if still and not refusals:
            refusals = [still]
        known = {_place(refusal) for refusal in refusals}
        first_uses = []
        if plain.attempt.refusal and warmed and _place(plain.attempt.refusal) not in known:
            attempts = tuple(run.attempt for run in (plain, *warmed))
            first_uses.append(FirstUse(plain.attempt.refusal, attempts))
        refused = {(r.operation.name, r.operation.location) for r in refusals if r.operation}
        complete = last.attempt.refusal is None
        candidates = {site: replace(seen[0], times=len(seen)) for site, seen in dry.session.candidates.items()}
        rest = {s: o for s, o in candidates.items() if (o.name, o.location) not in refused}
        suspected = [o for site, o in rest.items() if site not in self._done and (o.thread or not complete)]
        through = plain if plain.attempt.refusal is None else last
        outside = _strayed(last) if complete else []
        empty = _empty(through, dry, last.session.outside)
        return Observation(
            form=self._player.form,
            captures=len(dry.session.windows),
            operations=sum(window.launches + window.position for window in dry.session.windows),
            attempts=tuple(self._attempts),
            refusals=tuple(refusals),
            first_uses=tuple(first_uses),
            suspected=tuple(_in_order(suspected)),
            legal=tuple(_in_order([operation for site, operation in rest.items() if site in self._done])),
            outside=tuple(o for o in outside if o.location not in {graph.location for graph in empty}),
            host_sources=tuple(_grouped([source.operation for source in dry.session.host_sources if source.is_gone()])),
            empty=empty,
            host_values=host_values,
            moved=moved,
            instrument=self._no_cupti,
            complete=complete,
        )

    # runs

    def _run(
        self,
        *,
        dry: bool = False,
        watched: bool = True,
        served: tuple[Site, ...] = (),
        error_mode: str = "",
        host: HostValues | None = None,
        afterwards: Callable[[], None] | None = None,
    ) -> tuple[Session, Exception | None]:
        """Run the capturing code once; what it raised. Everything is taken out and set back afterwards."""
        modules = ModulePath(walk(self._player.roots()).modules)
        session = Session(dry, watched, self._kept, modules, self._backend.capture_status, served, host)
        self._session = session
        memory = Memory(self._backend, self._player.generators)
        stream, random = torch.cuda.current_stream(), memory.random_state()

        def captured(live: LiveGraph) -> None:
            if session.window is not None:
                session.window.nodes = live.nodes

        error: Exception | None = None
        with ExitStack() as stack:
            stack.callback(memory.set_random_state, random)
            stack.callback(torch.cuda.set_stream, stream)
            stack.enter_context(modules.followed())
            stack.enter_context(self._backend.log.listening(captured=captured))
            stack.enter_context(Windows(session, error_mode or self._player.error_mode).installed())
            stack.enter_context(wrapped(session, self._backend))
            if not dry and self._backend.name == "cuda":
                try:
                    stack.enter_context(failing_calls(session.call_failed))
                    self._no_cupti = ""
                except Unavailable as reason:
                    self._no_cupti = str(reason)
            if watched:
                stack.enter_context(OperatorWatch(session, self._backend, self._also))
            try:
                self._player.capture()
                if afterwards:
                    afterwards()
            except Exception as raised:
                error = cause(raised)
        return session, error

    def _dry_run(self, watched: bool = True) -> _Run:
        session, error = self._run(dry=True, watched=watched)
        if error is not None:
            raise error
        self._backend.synchronize()
        if not session.windows:
            raise Inconclusive(
                "the target captured nothing that could be watched",
                fix="capture with torch.cuda.graph or torch.cuda.CUDAGraph, in graphed() or recapture()",
            )
        return _Run(session, Attempt(watched))

    def _capture(self, *, watched: bool = True, served: tuple[Site, ...] = (), error_mode: str = "") -> _Run:
        session, error = self._run(watched=watched, served=served, error_mode=error_mode)
        self._done |= set(session.done) if watched else set()
        nodes = tuple(window.nodes for window in session.windows)
        run = _Run(session, Attempt(watched, session.gave, nodes=nodes))
        if error is not None:
            self._explain(run, error)
        self._attempts.append(run.attempt)
        return run

    def _explain(self, run: _Run, error: Exception) -> None:
        """Who broke the capture, from all that was noted."""
        if isinstance(error, DoctorError) and run.session.failures:
            run.out_of_reach, run.failure = error.what, run.session.failures[0]  # a stand-in that does not go so far
        first = cuda_errors.first(error)
        if first is None and not run.out_of_reach:
            raise error
        told = first or error
        failure = run.failure or run.session.culprit(first)
        operation = failure.operation if failure else None
        by = failure.told_by if failure else ToldBy.TRACEBACK
        api = run.session.failed_calls[0] if run.session.failed_calls else None
        if api is not None and (operation is None or api.operation.location not in (None, operation.location)):
            operation, by = (api.operation, ToldBy.CUPTI) if api.operation.kind is not Kind.UNKNOWN else (operation, by)
        elif api is not None:
            by = ToldBy.CUPTI
        if operation is None and (place := blame.user_location(told)):
            operation = Operation("", cuda_errors.kind_of(told) or Kind.UNKNOWN, place)
            by = ToldBy.TRACEBACK
        if operation is not None and operation.kind is Kind.UNKNOWN:
            operation = replace(operation, kind=cuda_errors.kind_of(told) or Kind.UNKNOWN)
        run.failure = failure
        run.attempt = replace(
            run.attempt,
            refusal=Refusal(
                operation,
                by,
                cuda_errors.message(told),
                code=cuda_errors.code_of(told) or (api.code if api else None),
                api=api.name if api else "",
                plain=cuda_errors.shown(error),
            ),
        )

    # steps of the plan

    def _warmed(self, plain: _Run) -> list[_Run]:
        """The same capture after one and two eager runs of what it captures."""
        runs = []
        for _ in range(_WARMED):
            self._dry_run(watched=False)
            runs.append(self._capture(watched=False))
            if runs[-1].attempt.refusal is not None:
                break
        return runs

    def _host_values(self) -> tuple[tuple[HostValue, ...], tuple[str, ...]]:
        """Host values that the body writes and others read, and all that it moves; in a dry run of their own."""
        host = HostValues(self._player.roots)
        found: list[HostValue] = []

        def look() -> None:
            found.extend(host.read_outside(self._player.eager_step, self._player.serve))

        _, error = self._run(dry=True, watched=False, host=host, afterwards=look)
        if error is not None:
            raise error
        return tuple(found), tuple(host.moved)

    def _confirm(self, dry: _Run) -> tuple[list[Refusal], _Run]:
        """Watched captures, each with one more operation served; the refusals and the last run."""
        refusals: list[Refusal] = []
        served: tuple[Site, ...] = ()
        while True:
            self._progress.advance(f"a watched capture, {len(served)} operations served")
            run = self._capture(served=served)
            refusal = run.attempt.refusal
            if refusal is None:
                return refusals, run
            site = run.failure.site if run.failure else None
            refusal = self._classified(refusal, site, dry)
            if self._is_elsewhere(refusal):
                refusal, run = self._without_threads(refusal, served, dry, run)
                return [*refusals, refusal], run
            if not run.out_of_reach:
                refusals.append(refusal)
            if site is None or site in served or len(refusals) >= _MOST_CAPTURES:
                return refusals, run
            if site not in dry.session.candidates and not (run.failure and run.failure.returns_nothing):
                self._also.add(site.name)
                dry.session.candidates |= self._dry_run().session.candidates
                if site not in dry.session.candidates:
                    return refusals, run
                refusals = [*refusals[:-1], self._classified(refusal, site, dry)]
            served = (*served, site)

    def _classified(self, refusal: Refusal, site: Site | None, dry: _Run) -> Refusal:
        """With what the dry run knows of the operation."""
        operation = refusal.operation
        known = dry.session.candidates.get(site, []) if site else []
        if operation is None or not known:
            return refusal
        seen = next((o for o in known if (o.capture, o.ordinal) == (operation.capture, operation.ordinal)), known[0])
        told = operation.kind is not Kind.UNKNOWN and seen.kind is Kind.LIBRARY_CALL
        return replace(refusal, operation=replace(seen, kind=operation.kind if told else seen.kind, times=len(known)))

    def _is_elsewhere(self, refusal: Refusal) -> bool:
        """Whether another thread broke the capture, or what raised found it broken already."""
        operation = refusal.operation
        if operation is not None and operation.thread:
            return True
        return refusal.code == 901 and refusal.told_by is not ToldBy.CUPTI

    def _without_threads(
        self, refusal: Refusal, served: tuple[Site, ...], dry: _Run, run: _Run
    ) -> tuple[Refusal, _Run]:
        """The same capture in a mode that lets other threads do as they like."""
        again = self._capture(served=served, error_mode="thread_local")
        passes = again.attempt.refusal is None
        operation = refusal.operation
        if passes and not (operation and operation.thread):
            foreign = [o for ops in dry.session.candidates.values() for o in ops if o.thread]
            threads = [t.name for t in threading.enumerate() if t is not threading.current_thread()]
            operation = foreign[0] if foreign else Operation("", Kind.OTHER_THREAD, None, thread=", ".join(threads))
        return replace(refusal, operation=operation, without_threads=passes), again if passes else run


def _place(refusal: Refusal) -> tuple[Any, ...]:
    """Where it was, as far as a plain capture and a watched one agree on it."""
    location = refusal.operation.location if refusal.operation else None
    return (location.file, location.line) if location else (refusal.message,)


def _in_order(operations: list[Operation]) -> list[Operation]:
    return sorted(operations, key=lambda operation: (operation.capture, operation.position))


def _grouped(operations: list[Operation]) -> list[Operation]:
    """One for each name and line, with how often."""
    groups: dict[Any, list[Operation]] = {}
    for operation in operations:
        groups.setdefault((operation.name, operation.location, operation.callers), []).append(operation)
    return [replace(group[0], times=len(group)) for group in groups.values()]


def _strayed(run: _Run) -> list[Operation]:
    """What went to streams that are not captured, one record a line."""
    groups: dict[Location | None, list[Operation]] = {}
    for operation in run.session.outside:
        groups.setdefault(operation.location, []).append(operation)
    found = []
    for operations in groups.values():
        names = list(dict.fromkeys(operation.name for operation in operations))
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} others" if len(names) > 3 else "")
        found.append(replace(operations[0], name=shown, times=len(operations)))
    return found


def _empty(through: _Run, dry: _Run, strayed: list[Operation]) -> tuple[EmptyGraph, ...]:
    """Graphs without a node, one for each line; where the work went instead, that line is told."""
    if through.attempt.refusal is not None:
        return ()
    instead = {operation.capture: operation.location for operation in reversed(strayed)}
    found: dict[Location | None, EmptyGraph] = {}
    for window in through.session.windows:
        if window.nodes != 0:
            continue
        place = instead.get(window.index, window.opened_at)
        elsewhere = sum(operation.capture == window.index for operation in strayed)
        launched = dry.session.windows[window.index].launches if window.index < len(dry.session.windows) else 0
        found.setdefault(place, EmptyGraph(place, elsewhere or launched))
    return tuple(found.values())
