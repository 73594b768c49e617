"""`capture`: which operations of the captured step does a capture refuse or lose, all in one run?

Collecting is `cudagraph_doctor.observation.observe` (torch), judging is `cudagraph_doctor.observation.judging` (plain).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from cudagraph_doctor import loader
from cudagraph_doctor.errors import DoctorError, Inconclusive
from cudagraph_doctor.findings import Outcome, Status
from cudagraph_doctor.graph import capture_errors
from cudagraph_doctor.graph.backend import Backend
from cudagraph_doctor.graph.recovery import free_generators
from cudagraph_doctor.method import REFUSED
from cudagraph_doctor.observation.judging import RULES, judge
from cudagraph_doctor.observation.model import Observation
from cudagraph_doctor.observation.observe import Observer
from cudagraph_doctor.observation.players import LoadingPlayer, Player, player_of
from cudagraph_doctor.progress import Progress
from cudagraph_doctor.settings import Settings

NAME = "capture"
NEEDS = frozenset({"target"})

_NOT_ASKED = (
    "what a step leaves out of its captures without asking torch whether its stream captures (by a flag of its own)"
)
_NOT_DISPATCHED = "what a step leaves out of its captures and launches without torch's dispatcher (Triton, CUDA C++)"
_KEPT_BY_PYTHON = (
    "what a warm-up computed and Python kept (`if self.cache is None`), so that the graph does not compute it: `diff` "
    "and `inputs` tell if it goes stale"
)
_CAST_BEFORE = (
    "weights that autocast cast before the target began to capture: it was entered already, and graphs may read what "
    "it keeps"
)
_CAST_AND_KEPT = (
    "updates of weights: graphs read copies in lower precision that were made within autocast before the capture, and "
    "are still kept; no replay makes them anew"
)
_NOT_EMULATED = (
    "calls of CUDA that libraries make by themselves (cudaMalloc, synchronisation, solver and communication libraries)",
    "what other threads do but wait for events and streams and pin memory",
    "graphs that are destroyed while another one is captured",
)

__all__ = ["NAME", "NEEDS", "RULES", "run", "run_unmade"]


def run(target: Any, backend: Backend, settings: Settings, progress: Progress) -> Outcome:
    """Watch the target capture.

    Args:
        target: a LoopTarget or an EngineTarget.
        backend: its hooks are in since before the target's module was imported.
        settings: buckets, batch sizes; the SPEC, for an engine that captures only when it is made.
        progress: told what is done.

    Raises:
        DoctorError: the target does not keep the contract, or does not capture.
    """

    def make(opened: Callable[[], int]) -> Player:
        return player_of(target, backend, settings, partial(_made_anew, target, backend, settings), opened)

    return _outcome(Observer(make, backend, progress).observe(), backend, settings)


def run_unmade(error: DoctorError, backend: Backend, settings: Settings, progress: Progress) -> Outcome | None:
    """Watch a target that cannot be made, if that is because it captures then and the capture fails; else None.

    Args:
        error: what making it raised.
        backend: its hooks are in since before the target's module was imported.
        settings: the SPEC.
        progress: told what is done.
    """
    raised = error.__cause__
    if raised is None or capture_errors.first(raised) is None:
        return None
    torch.cuda.set_stream(torch.cuda.default_stream())  # a capture that fails leaves its own stream current
    if backend.name == "cuda":
        free_generators()
    player = LoadingPlayer(lambda: loader.load(settings, backend.device))
    return _outcome(Observer(lambda opened: player, backend, progress).observe(), backend, settings)


def _made_anew(target: Any, backend: Backend, settings: Settings) -> Any:
    again = loader.load(settings, backend.device).target
    if type(again).__qualname__ != type(target).__qualname__ or again is target:
        raise Inconclusive(
            "the engine captures nothing but when it is made, and it cannot be made anew",
            seen=f"the SPEC {settings.spec} gives a {type(again).__qualname__}",
            fix="write `recapture()`, or name a function that makes the engine instead of the engine itself",
        )
    return again


def _outcome(seen: Observation, backend: Backend, settings: Settings) -> Outcome:
    findings = judge(seen, backend.name, settings.values)
    refused = len(seen.refusals) + len(seen.first_uses)
    legal = [f"{operation.name} at line {operation.location.line}" for operation in seen.legal if operation.location]
    harmless = [
        f"{operation.name} at line {operation.location.line}"
        for operation in seen.left_out.harmless
        if operation.location
    ]
    return Outcome(
        check=NAME,
        status=Status.FOUND if findings else Status.PASSED,
        not_checked=tuple(_not_checked(seen, backend)),
        checked={
            "form": seen.form,
            "captures": seen.captures,
            "operations while a capture was open": seen.operations,
            "runs of the capturing code": len(seen.attempts),
            **({REFUSED: refused} if refused else {}),
            **({"host values that captures moved": list(seen.moved)} if seen.moved else {}),
            **({"left out when captured, no harm shown": harmless} if harmless else {}),
            **({"looked illegal and are not": legal} if legal else {}),
        },
        findings=tuple(findings),
        rules=RULES,
    )


def _not_checked(seen: Observation, backend: Backend) -> list[str]:
    said = [*backend.not_checked(), _NOT_ASKED, *([_NOT_DISPATCHED] if seen.instrument else []), _KEPT_BY_PYTHON]
    if backend.name == "emulated":
        said += _NOT_EMULATED
    elif seen.instrument:
        said.append(
            f"the exact CUDA call that failed: {seen.instrument}; operators and the status of the capture were asked"
        )
    said += [f"what a capture makes of this: {what}" for what in seen.out_of_reach]
    if seen.left_out.not_compared:
        said.append(f"what the step leaves out when it is captured: {seen.left_out.not_compared}")
    if seen.autocast_from_before:
        said.append(_CAST_BEFORE)
    if any(not casts.gone and not casts.made_in_capture for casts in seen.casts):
        said.append(_CAST_AND_KEPT)
    if not seen.complete:
        said.append("what comes after the last refused operation, but for what the dry run saw of it")
    return said
