"""Copies between pinned host memory and the device that nobody waits for, forced by a slowed device.

The steps are run in a row, once with the host waiting after each copy, and several times without, ahead of a device
that is slowed down before each replay. Where only the latter are wrong, the host tensor is named whose copies have to
be waited for: written too early (it was read from), or read too early (it was written to).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from cudagraph_doctor.findings import Culprit, Finding, Location, Proof, Severity
from cudagraph_doctor.graph.backend import LiveGraph
from cudagraph_doctor.graph.callsite import callsite
from cudagraph_doctor.progress import Progress
from cudagraph_doctor.proof.arms import Arms
from cudagraph_doctor.proof.free_run import DELAY_MS, TIMES, Outputs, first_difference, run_freely
from cudagraph_doctor.proof.subject import Planned

UNTOLD = "copies between host and device that nobody waits for"


class Waiting(TorchDispatchMode):
    """Has the host wait after each copy between pinned memory and the device.

    Args:
        only: address of the host storage whose copies are waited for; None: all.
        wait: waits for the device.
    """

    def __init__(self, only: int | None = None, wait: Callable[[], None] = lambda: torch.cuda.synchronize()) -> None:
        super().__init__()  # type: ignore[no-untyped-call, unused-ignore]
        self.to_host = False
        """Whether a copy that was waited for went to the host."""
        self.last: Location | None = None
        """The user's line that issued the last of them."""
        self._only = only
        self._wait = wait

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator, and wait if it copies."""
        result = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.copy_.default:
            target, source = args[:2]
            host = target if target.device.type == "cpu" else source
            between = target.device.type != source.device.type
            if between and host.is_pinned() and self._only in (None, host.untyped_storage().data_ptr()):
                self.to_host, self.last = host is target, callsite()
                self._wait()
        return result


def handover_findings(arms: Arms, plan: Sequence[Planned], progress: Progress) -> list[Finding]:
    """Run and judge. What could not be judged is added to the subject's `not_checked`.

    Args:
        arms: after `discover_graphs`.
        plan: the steps, in order.
        progress: told what is run.
    """
    subject = arms.subject
    if subject.form == "loop":
        return []  # staged by the doctor, who waits
    if arms.backend.name != "cuda":
        subject.not_checked.append(f"{UNTOLD}: needs a GPU")
        return []

    def slow(_live: LiveGraph) -> None:
        arms.backend.delay(DELAY_MS)

    def ahead(waiting: Waiting | None = None) -> list[Outputs]:
        return run_freely(arms, plan, wait=False, listener=slow, around=waiting)

    progress.advance("in a row, waiting for each copy")
    right = run_freely(arms, plan, around=Waiting())
    if first_difference(run_freely(arms, plan, around=Waiting()), right) is not None:
        subject.not_checked.append(f"{UNTOLD}: the same steps in a row gave different results twice")
        return []
    wrong = []
    for number in range(TIMES):
        progress.advance(f"in a row, device slowed, {number + 1} of {TIMES}")
        at = first_difference(ahead(), right)
        if at is None:
            return []
        wrong.append(at)
    every = Waiting()
    if first_difference(ahead(every), right) is not None:
        return []  # another edge is missing than that behind a copy
    name, culprit = "pinned memory", every
    for candidate, tensor in arms.look_around().tensors.items():
        if arms.backend.is_host(tensor) and tensor.is_pinned():
            waiting = Waiting(tensor.untyped_storage().data_ptr())
            if first_difference(ahead(waiting), right) is None and waiting.last is not None:
                name, culprit = candidate, waiting
                break
    return [_finding(plan[min(wrong)], name, culprit, arms.backend.name)]


def _finding(step: Planned, name: str, waited: Waiting, backend: str) -> Finding:
    code, what = (
        ("CGD312", "read before the copy into it") if waited.to_host else ("CGD311", "rewritten before the copy")
    )
    return Finding(
        code,
        f"`{name}` is {what} has run.",
        Severity.ERROR,
        Proof.CONFIRMED,
        "Wait for an event recorded behind the copy.",
        culprit=Culprit("input" if code == "CGD311" else "output", name),
        location=waited.last,
        step=step.step,
        key=str(step.key),
        backend=backend,
        evidence={
            "wrong": f"{TIMES} of {TIMES} runs ahead of a device slowed by {DELAY_MS:g} ms a replay",
            "control": "0 of 2 runs that waited for each copy",
        },
    )
