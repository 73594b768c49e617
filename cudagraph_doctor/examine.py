"""Settings -> Report: runs the checks in a child process (or here) and turns however that ended into outcomes."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

from cudagraph_doctor import child, environment, shadowing, worker
from cudagraph_doctor.display import Display
from cudagraph_doctor.errors import UsageError
from cudagraph_doctor.findings import Finding, Outcome, Report, Status, finding_from_json, outcome_from_json, to_json
from cudagraph_doctor.loader import refuse_early
from cudagraph_doctor.settings import Settings
from cudagraph_doctor.stacks import stands_at

_SIGKILL_HINT = "SIGKILL usually means that the machine ran out of memory: see `dmesg`, and take a smaller target."


class Run:
    """What is known of a run so far, built from the worker's events."""

    def __init__(self, settings: Settings, checks: tuple[str, ...], display: Display) -> None:
        self._settings = settings
        self._checks = checks
        self._display = display
        self._environment: dict[str, Any] = environment.base()
        self._target: dict[str, Any] = {"spec": settings.spec}
        self._outcomes: list[Outcome] = []
        self._pending: Finding | None = None
        self._lost: tuple[str, str] | None = None
        self._refused: UsageError | None = None
        self._heard = False
        self._last_words = ""
        self._started = time.time()

    def on_event(self, event: dict[str, Any]) -> None:
        """Take one event of the worker in."""
        self._heard = True
        match event:
            case {"event": "say", "text": text}:
                self._display.say(text)
            case {"event": "stage", "text": text, "total": total}:
                self._last_words = text
                self._display.stage(text, total)
            case {"event": "advance", "text": text}:
                self._last_words = text or self._last_words
                self._display.advance(text)
            case {"event": "journal", "finding": finding}:
                self._pending = finding_from_json(finding)
            case {"event": "journal_clear"}:
                self._pending = None
            case {"event": "backend", "environment": facts}:
                self._environment = facts
            case {"event": "target", "target": facts}:
                self._target = facts
            case {"event": "outcome", "outcome": outcome}:
                self._outcomes.append(outcome_from_json(outcome))
            case {"event": "refused", "what": what, "seen": seen, "fix": fix, "traceback": traceback}:
                self._refused = UsageError(what, seen=seen, fix=fix, traceback=traceback)
            case {"event": "lost", "reason": reason, "traceback": traceback}:
                self._lost = (reason, traceback)

    def ended(self, end: child.End) -> None:
        """The child is gone: account for the checks that it did not finish."""
        if end.complete:
            return
        if end.timed_out:
            place = stands_at(end.stacks)
            where = [f"last seen: {self._last_words}" if self._last_words else "", f"at {place}" if place else ""]
            seen = ", ".join(filter(None, where))
            self._close(
                f"It was not finished after {self._settings.timeout_s:g} s and was stopped{seen and f' ({seen})'}.",
                "Look at the stacks (--debug) if it hangs; else give --timeout more seconds, or ask for less (--steps, "
                "--buckets).",
                end.stacks,
            )
        elif not self._heard and end.code > 0:
            named = {name: file for name, file in shadowing.in_the_way(sys.path).items() if file in end.tail}
            broken = "the installation of cudagraph-doctor or of Python is broken, or it is our bug"
            self._close(
                f"The child process could not start: exit code {end.code}.",
                shadowing.hint(named).strip() or f"See what it printed; {broken}.",
                end.tail,
                Status.ERRORED,
            )
        else:
            self._lost = self._lost or (_how(end.code), end.stacks or end.tail)

    def report(self) -> Report:
        """The report. Raises UsageError if the worker refused the request."""
        if self._refused:
            raise self._refused
        if self._lost:
            self._account_for_loss(*self._lost)
        return Report(
            tool=environment.tool(self._started),
            environment=self._environment,
            target=self._target,
            outcomes=tuple(self._outcomes),
            settings=to_json(self._settings),
        )

    def _unfinished(self) -> list[str]:
        done = {outcome.check for outcome in self._outcomes}
        return [check for check in self._checks if check not in done]

    def _account_for_loss(self, how: str, traceback: str) -> None:
        unfinished = self._unfinished()
        if self._pending and unfinished:
            finding = dataclasses.replace(self._pending, evidence={**self._pending.evidence, "process_lost": how})
            self._outcomes.append(
                Outcome(
                    unfinished[0],
                    Status.FOUND,
                    reason=f"The process was lost ({how}) in a replay; the finding names what was known by then.",
                    not_checked=("everything after the loss of the process",),
                    findings=(finding,),
                    rules=(finding.code,),
                    seconds=self._seconds(),
                    traceback=traceback,
                )
            )
        where = f" (last seen: {self._last_words})" if self._last_words else ""
        fix = "See what it printed, and the stacks with --debug; --in-process runs it under your debugger."
        if "SIGKILL" in how:
            fix = _SIGKILL_HINT
        self._close(f"The process was lost: {how}{where}.", fix, traceback)

    def _close(self, reason: str, fix: str, traceback: str, status: Status = Status.INCONCLUSIVE) -> None:
        for check in self._unfinished():
            self._outcomes.append(Outcome(check, status, reason, fix, seconds=self._seconds(), traceback=traceback))

    def _seconds(self) -> float:
        return round(time.time() - self._started, 3)


def examine(settings: Settings, display: Display, checks: tuple[str, ...] = ()) -> Report:
    """Run `settings.check` (or several checks, on one target in one process). Raises UsageError; interrupts pass."""
    checks = checks or (settings.check,)
    refuse_early(settings)
    run = Run(settings, checks, display)
    with display:
        if settings.in_process:
            with _stdout_to_stderr():
                worker.perform(settings, checks, run.on_event)
        else:
            run.ended(child.run(settings, checks, run.on_event, display.output))
    return run.report()


def _how(code: int) -> str:
    if code < 0:
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"killed by signal {-code}"
    return f"it ended itself with exit code {code}"


@contextlib.contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    """What the target prints, from Python or from C, goes to stderr: stdout carries only the report."""
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        os.dup2(2, 1)
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
