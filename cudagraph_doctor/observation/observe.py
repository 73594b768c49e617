"""The order of things: a plain capture, a dry run, then captures that are watched, until everything illegal is named.

1. A capture as the target makes it, with nothing on that changes what runs.
2. If it fails: the body once eagerly and the same capture again. What fails no more was a first use.
3. A dry run under observation: captures capture nothing, so the body runs eagerly, and what looks illegal is kept with
   its values.
4. Watched captures. Each gives what is known to be illegal its value from the dry run, and fails at the next illegal
   operation. One that goes through ends it: what it took was legal, whatever it looked like.
5. If the body asked whether it is captured: dry runs that are told so and dry runs that are told the truth, compared.
6. If a capture is opened inside of an autocast: a dry run that follows what that keeps.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from cudagraph_doctor import blame
from cudagraph_doctor.errors import Inconclusive
from cudagraph_doctor.findings import Location
from cudagraph_doctor.graph.backend import Backend
from cudagraph_doctor.graph.illegal import Kind
from cudagraph_doctor.observation.folding import lost_besides, once_a_line
from cudagraph_doctor.observation.left_out import left_out
from cudagraph_doctor.observation.model import EmptyGraph, FirstUse, LeftOut, Observation, Operation, Refusal, ToldBy
from cudagraph_doctor.observation.players import Player
from cudagraph_doctor.observation.records import Site
from cudagraph_doctor.observation.runs import Run, Runs
from cudagraph_doctor.progress import Progress

_MOST_CAPTURES = 64
"""Watched captures at most: each names one illegal operation."""
_WARMED = 2
"""Eager runs of the body after which a first use is tried again, one after the other."""
_TAKES_PAGEABLE = torch.__version__ < (2, 11)  # type: ignore[operator, unused-ignore]
"""Whether torch may let copies from pageable memory into a graph, which then reads memory that nobody keeps."""
_WITHOUT_THREADS = "thread_local"
"""The capture error mode that lets other threads do as they like."""


class Observer:
    """Observes one target.

    Args:
        make_player: makes the player, given how to ask how many captures were begun in the present run.
        backend: its hooks are in.
        progress: told what is done.
    """

    def __init__(
        self, make_player: Callable[[Callable[[], int]], Player], backend: Backend, progress: Progress
    ) -> None:
        self._runs = Runs(make_player, backend)
        self._progress = progress

    @torch.no_grad()
    def observe(self) -> Observation:
        """Everything, in order. Raises what the target raises when its step runs eagerly."""
        self._progress.stage("captures", 0)
        self._progress.advance("a capture as it is")
        plain = self._runs.capture(watched=False)
        warmed = self._warmed() if plain.attempt.refusal else []
        self._progress.advance("a dry run")
        dry = self._runs.dry()
        refusals, last = self._confirm(dry)
        self._progress.advance("host values")
        host_values, moved = self._runs.host_values()
        left_out = self._left_out() if dry.session.asked else LeftOut()
        casts = self._runs.casts() if dry.session.autocast_around else None
        stray_casts = casts.strays() if casts else ()
        always = warmed[-1].attempt.refusal if warmed and not warmed[-1].out_of_reach else None
        if always and not refusals:  # watched, something else ran
            refusals = [always]
        complete = last.attempt.refusal is None
        if not complete and not refusals:
            raise Inconclusive(
                "the capture could not be carried to its end",
                seen=last.out_of_reach,
                fix="run with --backend cuda on a GPU",
            )
        refusals = once_a_line(refusals)
        outside, empty = lost_besides(
            refusals,
            _strayed(last) if complete else (),
            _empty(plain if plain.attempt.refusal is None else last, dry, last.session.outside),
        )
        suspected, legal = self._others(dry, refusals, complete)
        taken = [o for o in legal if _TAKES_PAGEABLE and o.kind is Kind.PAGEABLE_COPY]
        return Observation(
            form=self._runs.player.form,
            captures=len(dry.session.windows),
            operations=sum(window.launches + window.position for window in dry.session.windows),
            attempts=tuple(self._runs.attempts),
            refusals=tuple(refusals),
            first_uses=_first_uses(plain, warmed),
            suspected=suspected,
            legal=tuple(operation for operation in legal if operation not in taken),
            outside=outside,
            host_sources=tuple(_grouped([*dry.lost_sources, *taken])),
            left_out=left_out,
            casts=stray_casts,
            autocast_from_before=casts is not None and casts.from_before,
            empty=empty,
            host_values=host_values,
            moved=moved,
            instrument=self._runs.no_cupti,
            out_of_reach=tuple(self._runs.out_of_reach),
            complete=complete,
        )

    def _left_out(self) -> LeftOut:
        """What the step does only where it is told that nothing captures."""
        self._progress.advance("what is left out of captures")
        try:
            return left_out(self._runs.effects)
        except Exception as error:  # told otherwise than it is used to, a target may do anything
            if blame.is_ours(error):
                raise
            return LeftOut(not_compared=f"an eager run of it raised {blame.describe(error)}")

    def _warmed(self) -> list[Run]:
        """The same capture after one and two eager runs of what it captures."""
        runs: list[Run] = []
        while len(runs) < _WARMED and (not runs or runs[-1].attempt.refusal is None):
            self._runs.dry(watched=False)
            runs.append(self._runs.capture(watched=False))
        return runs

    def _confirm(self, dry: Run) -> tuple[list[Refusal], Run]:
        """Watched captures, each with one more operation served; the refusals and the last run."""
        refusals: list[Refusal] = []
        served: tuple[Site, ...] = ()
        mode = ""
        while True:
            self._progress.advance(f"a watched capture, {len(served)} operations served")
            run = self._runs.capture(served=served, error_mode=mode)
            if run.attempt.refusal is None:
                return refusals, run
            site = run.failure.site if run.failure else None
            if site in served:  # it was got out of the way, and yet is in it
                return refusals, run
            if site is None and self._looks_closer(run.attempt.refusal):
                dry.session.candidates |= self._runs.dry().session.candidates
                continue
            refusal = _classified(run.attempt.refusal, site, dry)
            if not mode and _may_be_a_thread(refusal, run):
                again = self._runs.capture(served=served, error_mode=_WITHOUT_THREADS).attempt.refusal
                if again is None or _place(again) != _place(refusal):
                    mode = _WITHOUT_THREADS
                    refusals.append(replace(refusal, operation=_foreign(refusal, dry), without_threads=True))
                    continue
                refusal = replace(refusal, without_threads=False)
            if not run.out_of_reach:
                refusals.append(refusal)
            if site is None or len(refusals) >= _MOST_CAPTURES:
                return refusals, run
            if site not in dry.session.candidates and not (run.failure and run.failure.returns_nothing):
                self._runs.also.add(site.name)
                dry.session.candidates |= self._runs.dry().session.candidates
                if site not in dry.session.candidates:
                    return refusals, run
                refusals = [*refusals[:-1], _classified(refusal, site, dry)]
            served = (*served, site)

    def _looks_closer(self, refusal: Refusal) -> bool:
        """A copy that nobody told of may be an index's: from now on these are watched. Whether they were not yet."""
        copies = refusal.operation is not None and refusal.operation.kind is Kind.PAGEABLE_COPY
        before, self._runs.watches_indices = self._runs.watches_indices, self._runs.watches_indices or copies
        return before != self._runs.watches_indices

    def _others(
        self, dry: Run, refusals: list[Refusal], complete: bool
    ) -> tuple[tuple[Operation, ...], tuple[Operation, ...]]:
        """Of the other candidates, those that no capture came to and those that one took, in order.

        What another thread does need not hit the captures, though it hit the dry run.
        """
        refused = {(r.operation.name, r.operation.location) for r in refusals if r.operation}
        candidates = {site: replace(seen[0], times=len(seen)) for site, seen in dry.session.candidates.items()}
        rest = {site: o for site, o in candidates.items() if (o.name, o.location) not in refused}
        done = self._runs.done
        suspected = [o for site, o in rest.items() if site not in done and (o.thread or not complete)]
        return tuple(_in_order(suspected)), tuple(_in_order([o for site, o in rest.items() if site in done]))


def _classified(refusal: Refusal, site: Site | None, dry: Run) -> Refusal:
    """With what the dry run knows of the operation."""
    operation = refusal.operation
    known = dry.session.candidates.get(site, []) if site else []
    if operation is None or operation.kind is Kind.OUTSIDE_CAPTURE or not known:
        return refusal
    seen = next((o for o in known if (o.capture, o.ordinal) == (operation.capture, operation.ordinal)), known[0])
    told = operation.kind is not Kind.UNKNOWN and seen.kind is Kind.LIBRARY_CALL
    return replace(refusal, operation=replace(seen, kind=operation.kind if told else seen.kind, times=len(known)))


def _may_be_a_thread(refusal: Refusal, run: Run) -> bool:
    """Whether another thread broke the capture, or what raised found it broken already and nobody knows by whom."""
    if any(window.error_mode != "global" for window in run.session.windows[-1:]):
        return False
    if refusal.operation is not None and refusal.operation.thread:
        return True
    return refusal.code == 901 and refusal.told_by is not ToldBy.CUPTI


def _foreign(refusal: Refusal, dry: Run) -> Operation:
    """What another thread did to the capture, or at least which threads there are."""
    if refusal.operation is not None and refusal.operation.thread:
        return refusal.operation
    seen = [operation for known in dry.session.candidates.values() for operation in known if operation.thread]
    others = [thread.name for thread in threading.enumerate() if thread is not threading.current_thread()]
    return seen[0] if seen else Operation("", Kind.OTHER_THREAD, None, thread=", ".join(others))


def _first_uses(plain: Run, warmed: list[Run]) -> tuple[FirstUse, ...]:
    """What the first capture failed of, if the same capture does not after an eager run of its body."""
    refusal = plain.attempt.refusal
    still = warmed[-1].attempt.refusal if warmed else None
    if refusal is None or (still is not None and _place(still) == _place(refusal)):
        return ()
    return (FirstUse(refusal, tuple(run.attempt for run in (plain, *warmed))),)


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


def _strayed(run: Run) -> list[Operation]:
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


def _empty(through: Run, dry: Run, strayed: list[Operation]) -> tuple[EmptyGraph, ...]:
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
