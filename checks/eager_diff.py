"""`diff`: run each step eagerly and by graph; where do they part, and who did it?

Reads downwards: plan and estimate, find the state, capture; `proof.steps` runs the arms of each step and diagnoses the
bad ones; `proof.wording` turns what was found into findings. The free-running pass at the end is for what forced steps
cannot show: kept outputs and ordering.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from cudagraph_doctor import blame
from cudagraph_doctor.errors import DoctorError
from cudagraph_doctor.findings import Finding, Outcome, Status, Step
from cudagraph_doctor.graph.backend import Backend, ListenerError
from cudagraph_doctor.progress import Progress
from cudagraph_doctor.proof import places
from cudagraph_doctor.proof.arms import Arms
from cudagraph_doctor.proof.compare import without_values
from cudagraph_doctor.proof.danger import Danger
from cudagraph_doctor.proof.engine import EngineSubject
from cudagraph_doctor.proof.free_run import free_run_findings
from cudagraph_doctor.proof.loop import LoopSubject
from cudagraph_doctor.proof.notes import kept_only_by_steps, moved_by_staging, reset_finding
from cudagraph_doctor.proof.replaced import (
    By,
    Replaced,
    bound_by_one_side,
    bound_by_staging,
    state_replaced,
)
from cudagraph_doctor.proof.start import discover, planned, subject_of, without_graph
from cudagraph_doctor.proof.steps import HORIZON, Steps
from cudagraph_doctor.proof.subject import Planned
from cudagraph_doctor.proof.verdict import Kind
from cudagraph_doctor.proof.wording import explain, replaced_finding
from cudagraph_doctor.settings import Settings

NAME = "diff"
RULES = ("CGD001", "CGD002", "CGD003", "CGD101", "CGD102", "CGD103", "CGD104", "CGD105", "CGD106", "CGD107")
NEEDS = frozenset({"target"})

_RUNS = 5
"""Runs of a clean step: eager and replayed twice each, and once more through the graph before anything is compared."""


def run(target: Any, backend: Backend, settings: Settings, progress: Progress) -> Outcome:
    """Compare the target's steps eagerly and by graph.

    Args:
        target: a LoopTarget or an EngineTarget.
        backend: its hooks are in since before the target's module was imported.
        settings: steps, buckets, batch sizes, tolerances.
        progress: told what is done.

    Raises:
        DoctorError: the target does not keep the contract, or cannot be compared.
    """
    subject = subject_of(target, backend)
    return _Diff(subject, backend, settings, progress).outcome()


class _Diff:
    def __init__(
        self, subject: LoopSubject | EngineSubject, backend: Backend, settings: Settings, progress: Progress
    ) -> None:
        self.subject = subject
        self.backend = backend
        self.settings = settings
        self.progress = progress
        self.arms = Arms(subject, backend, lambda at: self.danger.watch(at))
        self.danger = Danger(self.arms, subject.target, progress)
        self.steps = Steps(subject, self.arms, self.danger, settings)

    @torch.no_grad()  # a decode step has no use for gradients; and all arms have to run alike
    def outcome(self) -> Outcome:
        """Everything, in order."""
        settings = self.settings
        plan, compared = planned(self.subject, settings)
        try:
            discover(self.arms, compared, self.progress, _RUNS, settings.tolerances)
            replaced = state_replaced(self.arms, compared, HORIZON, settings.tolerances)
            if replaced is not None:
                return self._state_lost(compared, replaced)
            self.progress.stage("steps", len(compared))
            self.arms.begin(compared)
            for at in compared:
                self.progress.advance(f"step {at.step}, {at.in_rows}, graph {at.key}")
                self.steps.play(at)
        except (DoctorError, ListenerError):
            raise
        except Exception as error:
            danger = self.danger.finding  # eager steps ran before: it is the replay that fails
            if danger is None or blame.is_out_of_memory(error):
                raise
            return self._failed(compared, danger, error)
        self.steps.played += without_graph(plan)
        findings = self._findings()
        if not any(finding.severity.rank > 0 and finding.culprit for finding in findings):
            findings = self._one_sided(compared, findings)
        # what forced steps have shown already would show again when they run freely
        if not any(finding.code in ("CGD101", "CGD102", "CGD103") for finding in findings):
            self.progress.stage("free running", 1)
            findings += free_run_findings(self.arms, compared, self.progress, self.settings.values)
        return self._summed_up(compared, findings)

    def _failed(self, plan: list[Planned], danger: Finding, error: Exception) -> Outcome:
        what = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        message = f"{danger.message} It raised {what}"
        finding = replace(danger, message=message, evidence={**danger.evidence, "error": what})
        self.subject.not_checked.append("what comes after the replay that failed")
        return self._summed_up(plan, [finding, *self._findings()])

    def _state_lost(self, plan: list[Planned], found: Replaced) -> Outcome:
        """No arm can start from state that moves from under it: this is mended first."""
        if not self.settings.values:
            found = replace(found, differences=tuple(without_values(found.differences)))
        at = found.at
        self.steps.played.append(Step(at.step, at.rows, str(at.key), "finding", {"kind": Kind.FROZEN.value}))
        self.subject.not_checked.append(f"all other steps, as long as `{found.names[0]}` is put in another's place")
        staging = places.staging(self.subject.target)
        return self._summed_up(plan, [replaced_finding(found, staging, self.backend.name), *self._findings()])

    def _one_sided(self, plan: list[Planned], findings: list[Finding]) -> list[Finding]:
        """The findings, with what is put in another's place by eager steps, or by graph steps, alone."""
        found = bound_by_one_side(self.arms, plan, HORIZON, self.settings.tolerances)
        kept = [name for name in self.arms.found.bound_by_steps if found is None or name not in found.names]
        if kept:
            self.subject.not_checked.append(kept_only_by_steps(kept))
        if found is None:
            moved = bound_by_staging(self.arms)
            if moved and any(finding.code == "CGD001" for finding in findings):
                self.subject.not_checked.append(moved_by_staging(moved))
            return findings
        if not self.settings.values:
            found = replace(found, differences=tuple(without_values(found.differences)))
        told = replaced_finding(found, places.staging(self.subject.target), self.backend.name)
        # eager steps that read what a graph step has put there do not repeat
        return [told, *(f for f in findings if f.code != "CGD001" or found.by is By.STEP)]

    def _findings(self) -> list[Finding]:
        findings = []
        found = self.arms.found
        if found.unrestored:
            findings.append(reset_finding(found.unrestored, self.backend.name))
        for case in self.steps.cases:
            findings += explain(case, self.backend.name)
        return findings + self.steps.notes

    def _summed_up(self, plan: list[Planned], findings: list[Finding]) -> Outcome:
        not_checked = [*self.subject.not_checked, *self.backend.not_checked()]
        if not self.arms.found.walked_all:
            not_checked.append(
                "the target's objects are too many to walk: some names and host values were not looked at"
            )
        unjudged = [s for s in self.steps.played if s.verdict == "inconclusive"]
        if unjudged:
            not_checked.append(
                f"{len(unjudged)} of {len(self.steps.played)} steps could not be judged "
                f"({unjudged[0].detail.get('reason') or 'eager is not reproducible there'})"
            )
        spoken = [f for f in findings if f.severity.rank > 0]
        judged = len(self.steps.played) - len(unjudged)
        status = Status.FOUND if spoken else Status.PASSED if judged else Status.INCONCLUSIVE
        return Outcome(
            check=NAME,
            status=status,
            reason="" if judged or spoken else "no step could be judged",
            fix="" if judged or spoken else "see what was not checked",
            not_checked=tuple(dict.fromkeys(not_checked)),
            checked={
                "backend": self.backend.name,
                "form": self.subject.form,
                "steps": judged,
                "graphs": self.arms.found.graphs_replayed,
                "batch sizes": sorted({at.rows for at in plan}),
                "runs": self.arms.runs,
                "state bytes": sum(e.bytes for e in self.arms.found.state),
                "host values that steps move": len(self.arms.found.host_moves),
            },
            steps=tuple(sorted(self.steps.played, key=lambda s: s.index)),
            findings=tuple(findings),
            rules=RULES,
            coverage=judged / len(self.steps.played) if self.steps.played else None,
        )


__all__ = ["NAME", "NEEDS", "RULES", "run", "subject_of"]
