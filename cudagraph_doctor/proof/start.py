"""How a check on a target begins: the target as a subject, its plan, its state, its captures, and an estimate first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from cudagraph_doctor import contract, tree
from cudagraph_doctor.errors import Inconclusive
from cudagraph_doctor.findings import Step
from cudagraph_doctor.given_names import check_tolerances, reserved_rows
from cudagraph_doctor.graph.backend import Backend
from cudagraph_doctor.progress import Progress
from cudagraph_doctor.proof.arms import Arms
from cudagraph_doctor.proof.engine import EngineSubject
from cudagraph_doctor.proof.loop import LoopSubject
from cudagraph_doctor.proof.runner import RunnerSubject
from cudagraph_doctor.proof.subject import Planned
from cudagraph_doctor.settings import Settings

_COPIES = 6
"""Copies of the state that are held at once: saved, eager, replayed and fresh, two of them with a control."""


def subject_of(target: Any, backend: Backend) -> LoopSubject | EngineSubject:
    """The target as a subject."""
    if contract.check(target) == "engine":
        return EngineSubject(target, backend)
    return RunnerSubject(target, backend) if contract.has(target, "graphed") else LoopSubject(target, backend)


def planned(subject: LoopSubject | EngineSubject, settings: Settings) -> tuple[list[Planned], list[Planned]]:
    """All steps, and those that a graph serves, with positions of their own. Raises Inconclusive if there are none."""
    plan = subject.plan(settings.steps, settings.buckets, settings.batch_sizes, settings.exhaustive)
    served = [at for at in plan if at.key is not None and at.rows > 0]
    if not served:
        raise Inconclusive(
            "no step of the plan is served by a graph",
            seen=f"batch sizes {sorted({at.rows for at in plan})}",
            fix="choose other --batch-sizes",
        )
    if isinstance(subject, LoopSubject):
        subject.check_contract(served)
    return plan, [replace(at, index=i) for i, at in enumerate(served)]


def without_graph(plan: Sequence[Planned]) -> list[Step]:
    """What is to be said of the steps that no graph serves."""
    return [
        Step(
            at.index,
            at.rows,
            "",
            "inconclusive",
            {"reason": "an empty batch" if at.rows == 0 else "above the largest bucket, so it has no graph"},
        )
        for at in plan
        if at.key is None or at.rows == 0
    ]


def discover(
    arms: Arms, plan: Sequence[Planned], progress: Progress, runs: int, tolerances: Iterable[str] = ()
) -> None:
    """Find the state, say what is to come, and capture.

    Args:
        arms: nothing was run by them yet.
        plan: the steps that a graph serves.
        progress: told what is done.
        runs: how often a clean step will be run, for the estimate.
        tolerances: names of outputs that the user gave tolerances for.

    Raises Inconclusive if there is no memory for copies of the state, UsageError if there is no such output.
    """
    subject, backend = arms.subject, arms.backend
    progress.stage("finding the state", 3)
    progress.advance("eager steps")
    found = arms.discover(plan, lambda outputs: check_tolerances(tolerances, tree.leaves(outputs)))
    reserved_rows(subject.reserved(), arms.look_around())  # a name that leads nowhere is refused early
    each, state = found.step_seconds, sum(e.bytes for e in found.state)
    progress.say(
        f"{len(plan)} steps of about {each * 1000:.3g} ms, each run {runs} times or more: some "
        f"{runs * each * len(plan):.2g} s and the captures; {arms.memory.live_bytes / 2**20:.3g} MiB of live "
        f"memory watched, {state / 2**20:.3g} MiB of it state, up to {_COPIES * state / 2**20:.3g} MiB for copies"
    )
    if _COPIES * state > backend.free_bytes():
        raise Inconclusive(
            "there is not enough free device memory for copies of the state",
            seen=f"{_COPIES * state} bytes needed, {backend.free_bytes()} free",
            fix="use a smaller KV cache for this run",
        )
    progress.advance("captures")
    arms.capture_all(plan)
    progress.advance("graph steps")
    arms.discover_graphs(plan)
