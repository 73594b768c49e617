"""The child: chooses the backend, loads the target, runs the checks, sends what happens as JSON lines.

`child.py` starts it; `perform` is the same work without a process around it (`--in-process`). What is sent are plain
dicts with an "event": backend, target, say, stage, advance, journal, journal_clear, outcome, refused (usage), lost (the
device cannot be used any more).
"""

from __future__ import annotations

import dataclasses
import faulthandler
import gc
import importlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from cudagraph_doctor import blame, environment, method, shadowing
from cudagraph_doctor.checks import CHECKS, Check
from cudagraph_doctor.errors import DoctorError, Inconclusive, TargetError, UsageError
from cudagraph_doctor.findings import Finding, Outcome, Status, to_json
from cudagraph_doctor.graph import capture_errors
from cudagraph_doctor.settings import Settings

if TYPE_CHECKING:
    from cudagraph_doctor.graph.backend import Backend

Send = Callable[[dict[str, Any]], None]

STACKS_SIGNAL = signal.SIGUSR1
"""On this signal the child writes the stacks of all its threads."""

_DEVICE_IS_GONE = (
    "illegal memory access",
    "device-side assert",
    "misaligned address",
    "launch failure",
    "illegal instruction",
    "hardware stack error",
)


class Relay:
    """A `Progress` that sends everything on."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def say(self, text: str) -> None:
        """See `Progress.say`."""
        self._send({"event": "say", "text": text})

    def stage(self, text: str, total: int) -> None:
        """See `Progress.stage`."""
        self._send({"event": "stage", "text": text, "total": total})

    def advance(self, text: str = "") -> None:
        """See `Progress.advance`."""
        self._send({"event": "advance", "text": text})

    def journal(self, finding: Finding) -> None:
        """See `Progress.journal`."""
        self._send({"event": "journal", "finding": to_json(finding)})

    def journal_clear(self) -> None:
        """See `Progress.journal_clear`."""
        self._send({"event": "journal_clear"})


def choose_backend(name: str) -> tuple[Backend, str]:
    """The backend to use, and why it is not the GPU ("" if it is, or if the user asked for emulation).

    Raises Inconclusive if "cuda" was asked for and cannot be used here.
    """
    if name != "emulated":
        obstacle = environment.cuda_obstacle()
        if not obstacle:
            from cudagraph_doctor.graph.cuda import CudaBackend

            return CudaBackend(), ""
        if name == "cuda":
            raise Inconclusive(
                "The CUDA backend was asked for and cannot be used here.",
                seen=obstacle,
                fix="Run on a machine with a GPU (see `cudagraph-doctor env`), or use --backend emulated.",
            )
    else:
        obstacle = ""
    from cudagraph_doctor.graph.emulated import EmulatedBackend

    return EmulatedBackend(), obstacle


def _sentence(text: str) -> str:
    """With a full stop, unless it ends in one or in code."""
    return text if text.endswith((".", "!", "?", ")")) else f"{text}."


def perform(settings: Settings, checks: tuple[str, ...], send: Send) -> None:
    """Run the checks on the target and send their outcomes; every failure becomes an event, none is raised.

    Only KeyboardInterrupt passes through.
    """
    progress = Relay(send)
    done: list[Outcome] = []
    started = time.perf_counter()
    try:
        progress.stage("importing torch", 0)
        backend, reason = choose_backend(settings.backend)
        facts = {**environment.runtime(), "backend": backend.name, "backend_reason": reason}
        send({"event": "backend", "environment": facts})
        gc.freeze()  # torch's modules stay: a check collects garbage several times, and each time would visit them all
        with backend.installed():
            from cudagraph_doctor import loader

            progress.stage("loading the target", 0)
            try:
                loaded = loader.load(settings, backend.device)
            except TargetError as error:
                if not _explained(error, checks, backend, settings, send):
                    raise (_refused_capture(error, settings) or error) from error.__cause__
                return
            send({"event": "target", "target": loaded.description})
            if backend.name == "cuda":
                send({"event": "backend", "environment": facts | environment.gpu()})
            for warning in loaded.warnings:
                progress.say(warning)
            run_checks(
                checks,
                loaded.target,
                backend,
                settings,
                send,
                done,
                lambda: loader.load(settings, backend.device).target,
            )
    except UsageError as error:
        send(
            {"event": "refused", "what": error.what, "seen": error.seen, "fix": error.fix, "traceback": error.traceback}
        )
    except DeviceGone as error:
        send({"event": "lost", "reason": str(error), "traceback": error.traceback})
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        for name in checks[len(done) :]:
            outcome = dataclasses.replace(outcome_of_error(name, error), seconds=time.perf_counter() - started)
            send({"event": "outcome", "outcome": to_json(outcome)})
        if len(done) == len(checks):
            progress.say(f"after the checks, while the hooks were taken out: {blame.describe(error)}")


class DeviceGone(Exception):
    """The device reported an error after which its context cannot be used."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(blame.describe(error))
        self.traceback = blame.user_traceback(error)


def _explained(error: TargetError, checks: tuple[str, ...], backend: Backend, settings: Settings, send: Send) -> bool:
    """Whether each check could say something of a target that cannot be made, or is pointless by what others said."""
    outcomes: list[Outcome] = []
    for name in checks:
        check: Any = importlib.import_module(f"cudagraph_doctor.checks.{CHECKS[name]}")
        explain = getattr(check, "run_unmade", None)
        said = explain(error, backend, settings, Relay(send)) if explain else method.pointless(name, outcomes)
        if said is None:
            return False
        outcomes.append(said)
    for outcome in outcomes:
        send({"event": "outcome", "outcome": to_json(outcome)})
    return True


def _refused_capture(error: TargetError, settings: Settings) -> Inconclusive | None:
    """What to say of a target that cannot be made because it captures then and the capture fails; else None."""
    refused = capture_errors.first(error.__cause__) if error.__cause__ else None
    if refused is None:
        return None
    return Inconclusive(
        f"The target {settings.spec} captures while it is made, and that capture was refused.",
        seen=blame.describe(refused),
        fix=f"See `cudagraph-doctor capture {settings.spec}`: it lists all that a capture refuses there, with fixes.",
        traceback=error.traceback,
    )


def run_checks(
    checks: Sequence[str],
    target: Any,
    backend: Backend,
    settings: Settings,
    send: Send,
    done: list[Outcome],
    again: Callable[[], Any],
) -> None:
    """Run checks one after the other on one target; what an earlier one makes pointless is skipped, and said.

    Args:
        checks: command-line words.
        target: a LoopTarget or an EngineTarget.
        backend: its hooks are in.
        settings: of all of them.
        send: takes the events.
        done: outcomes are added to it, so that they are known where something is raised.
        again: makes the target anew.

    Raises:
        UsageError: the request cannot be served.
        DeviceGone: the device is lost.
    """
    settings, left_out = method.quickly(settings, target)
    for name in checks:
        outcome = method.pointless(name, done)
        if outcome is None:
            target = method.ready(target, done, again)
            outcome = run_check(name, target, backend, settings, send, left_out)
        else:
            send({"event": "outcome", "outcome": to_json(outcome)})
        done.append(outcome)


def run_check(
    name: str, target: object, backend: Backend, settings: Settings, send: Send, left_out: Sequence[str] = ()
) -> Outcome:
    """Run one check and send its outcome; `left_out` is not checked either. Raises UsageError, DeviceGone."""
    started = time.perf_counter()
    check: Check = importlib.import_module(f"cudagraph_doctor.checks.{CHECKS[name]}")
    progress = Relay(send)
    try:
        run = getattr(check, "run_on_target", check.run)  # `audit` does without a target as well
        outcome = run(target, backend, settings, progress)
    except (KeyboardInterrupt, UsageError):
        raise
    except BaseException as error:
        if isinstance(error, RuntimeError) and any(text in str(error) for text in _DEVICE_IS_GONE):
            raise DeviceGone(error) from error
        outcome = dataclasses.replace(outcome_of_error(name, error), rules=tuple(check.RULES))
    outcome = dataclasses.replace(outcome, seconds=time.perf_counter() - started)
    outcome = dataclasses.replace(outcome, not_checked=(*outcome.not_checked, *left_out))
    progress.journal_clear()
    send({"event": "outcome", "outcome": to_json(outcome)})
    return outcome


def outcome_of_error(check: str, error: BaseException) -> Outcome:
    """What an exception that ended a check means: inconclusive if the user can mend it, else our own bug."""
    cause = error.__cause__ if isinstance(error, DoctorError) and error.__cause__ else error
    return dataclasses.replace(_meaning(check, error), location=blame.user_location(cause))


def _meaning(check: str, error: BaseException) -> Outcome:
    trace = blame.user_traceback(error)
    shadows = shadowing.hint(shadowing.loaded()) if isinstance(error, (ImportError, AttributeError)) else ""
    if isinstance(error, DoctorError):
        reason = " ".join(_sentence(text) for text in (error.what, error.seen and f"Seen: {error.seen}") if text)
        return Outcome(check, Status.INCONCLUSIVE, reason, error.fix, traceback=error.traceback or trace)
    if blame.is_out_of_memory(error):
        return Outcome(
            check,
            Status.INCONCLUSIVE,
            f"Memory ran out: {blame.describe(error)}.",
            "Name fewer --buckets, take a smaller target (--target-arg), or free the memory that others hold.",
            traceback=trace,
        )
    if blame.is_ours(error) and shadows:
        reason = f"Python's own modules are not all there: {blame.describe(error)}."
        return Outcome(check, Status.INCONCLUSIVE, reason, shadows.strip(), traceback=trace)
    if blame.is_ours(error):
        return Outcome(
            check,
            Status.ERRORED,
            f"A bug in cudagraph-doctor: {blame.describe(error)}.",
            "Please report it, with what --debug prints.",
            traceback=trace,
        )
    return Outcome(
        check,
        Status.INCONCLUSIVE,
        f"The target raised {blame.describe(error)}.",
        f"Mend the target so that this step runs; --debug shows the whole traceback.{shadows}",
        traceback=trace,
    )


def main() -> None:
    """Entry of the child: the first line of stdin is the job, the end of stdin means that the parent is gone."""
    job = json.loads(sys.stdin.readline())
    messages, stacks = int(job["messages_fd"]), int(job["stacks_fd"])
    for inherited in (messages, stacks):
        os.set_inheritable(inherited, False)
    faulthandler.enable(stacks)
    faulthandler.register(STACKS_SIGNAL, stacks)
    _die_with_parent()
    lock = threading.Lock()
    with os.fdopen(messages, "w", encoding="utf-8") as channel:

        def send(event: dict[str, Any]) -> None:
            with lock:
                channel.write(json.dumps(event, default=str) + "\n")
                channel.flush()

        perform(Settings.from_json(job["settings"]), tuple(job["checks"]), send)
        send({"event": "done"})


def _die_with_parent() -> None:
    """Keep the real stdin as the parent's lifeline; the target reads an empty one instead."""
    lifeline = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)

    def watch() -> None:
        while os.read(lifeline, 4096):
            pass
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, name="cudagraph-doctor lifeline", daemon=True).start()
