"""`diff`: run each step eagerly and by graph; where do they part, and who did it?

Reads downwards: `run` plans and estimates, `_Collector` runs the arms of each step and diagnoses the bad ones (torch),
`proof.verdict.judge` says what a step is (plain), `wording` turns a diagnosis into a finding (plain). The free-running
pass at the end is for what teacher-forced steps cannot show: kept outputs and ordering.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from cudagraph_doctor import blame, contract
from cudagraph_doctor.errors import DoctorError, Inconclusive
from cudagraph_doctor.findings import Finding, Outcome, Status, Step
from cudagraph_doctor.graph.backend import Backend, ListenerError
from cudagraph_doctor.graph.model import Origin
from cudagraph_doctor.progress import Progress
from cudagraph_doctor.proof import places
from cudagraph_doctor.proof.arms import UNNAMED, Arm, Arms, Result, same_state
from cudagraph_doctor.proof.compare import Level, compare, without_values
from cudagraph_doctor.proof.diagnose import Diagnosis, Doctor
from cudagraph_doctor.proof.engine import EngineSubject
from cudagraph_doctor.proof.free_run import free_run_findings
from cudagraph_doctor.proof.loop import LoopSubject
from cudagraph_doctor.proof.nodes import first_unlike
from cudagraph_doctor.proof.probes import first_diverging_module
from cudagraph_doctor.proof.repair import Cause, moved_names
from cudagraph_doctor.proof.replaced import Replaced, state_replaced
from cudagraph_doctor.proof.runner import RunnerSubject
from cudagraph_doctor.proof.state_diff import StateDifference, harmful, owner, state_difference
from cudagraph_doctor.proof.subject import Planned
from cudagraph_doctor.proof.verdict import Gap, Kind, StepRecord, judge, needs_fresh
from cudagraph_doctor.proof.wording import (
    MADE_UP_PADDING,
    Case,
    Places,
    explain,
    failing_replay,
    numerics_note,
    one_fault_each,
    replaced_finding,
    reset_finding,
    reset_not_in_place,
    unknown_note,
)
from cudagraph_doctor.settings import Settings

NAME = "diff"
RULES = ("CGD001", "CGD002", "CGD003", "CGD101", "CGD102", "CGD103", "CGD104", "CGD105", "CGD106", "CGD107")
NEEDS = frozenset({"target"})

_RUNS = 5
"""Runs of a clean step: eager and replayed twice each, and once more through the graph before anything is compared."""
_COPIES = 6
"""Copies of the state that are held at once: saved, eager, replayed and fresh, two of them with a control."""
_HORIZON = 6
"""Eager steps run on from a differing state to see whether it does harm."""
_REPEATS = 3
"""Further pairs of runs before a measured finding is spoken."""
_ROUNDING_SEEN = 2
"""Steps of one graph of an engine at which rounding is checked against a recapture; later ones are taken as such."""
_MAX_DIAGNOSES = 4
"""Bad steps diagnosed from scratch; later ones are compared with the culprits known by then."""

_VERDICTS = {
    Kind.CLEAN: "clean",
    Kind.NUMERICS: "note",
    Kind.HARMLESS: "note",
    Kind.UNKNOWN: "inconclusive",
    Kind.PADDING: "inconclusive",
    Kind.FROZEN: "finding",
    Kind.DIFFERS: "finding",
    Kind.UNTOLD: "finding",
    Kind.UNSTABLE: "finding",
}


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
    return _Collector(subject, backend, settings, progress).collect()


def subject_of(target: Any, backend: Backend) -> LoopSubject | EngineSubject:
    """The target as a subject."""
    if contract.check(target) == "engine":
        return EngineSubject(target, backend)
    return RunnerSubject(target, backend) if contract.has(target, "graphed") else LoopSubject(target, backend)


class _Collector:
    def __init__(
        self, subject: LoopSubject | EngineSubject, backend: Backend, settings: Settings, progress: Progress
    ) -> None:
        self.subject = subject
        self.backend = backend
        self.settings = settings
        self.progress = progress
        self.arms = Arms(subject, backend, self._watch)
        self.danger: Finding | None = None
        self.replays_before = 0
        self.suspicion: tuple[int, Finding] | None = None
        self.doctor = Doctor(self.arms, self.gap)
        self.bad: list[Case] = []
        """Bad steps, each fault's first one, with all steps that it was seen at."""
        self.steps: list[Step] = []
        self.notes: list[Finding] = []

    @torch.no_grad()  # a decode step has no use for gradients; and all arms have to run alike
    def collect(self) -> Outcome:
        """Everything, in order."""
        settings, subject = self.settings, self.subject
        plan = subject.plan(settings.steps, settings.buckets, settings.batch_sizes, settings.exhaustive)
        compared = [at for at in plan if at.key is not None and at.rows > 0]
        if not compared:
            raise Inconclusive(
                "no step of the plan is served by a graph",
                seen=f"batch sizes {sorted({at.rows for at in plan})}",
                fix="choose other --batch-sizes",
            )
        if isinstance(subject, LoopSubject):
            subject.check_contract(compared)
        compared = [replace(at, index=i) for i, at in enumerate(compared)]
        try:
            self._discover(compared)
            replaced = state_replaced(self.arms, compared, _HORIZON, settings.tolerances)
            if replaced is not None:
                return self._state_lost(compared, replaced)
            self.progress.stage("steps", len(compared))
            self.arms.begin(compared)
            for at in compared:
                self.progress.advance(f"step {at.step}, {at.rows} rows, graph {at.key}")
                self._step(at)
        except (DoctorError, ListenerError):
            raise
        except Exception as error:
            # eager steps ran before: it is the replay that fails, once it was launched
            launched = self.backend.log.replays > self.replays_before
            if self.danger is None or not launched or blame.is_out_of_memory(error):
                raise
            return self._failed(compared, self.danger, error)
        for at in plan:
            if at.key is None or at.rows == 0:
                why = "an empty batch" if at.rows == 0 else "above the largest bucket, so it has no graph"
                self.steps.append(Step(at.index, at.rows, "", "inconclusive", {"reason": why}))
        findings = self._findings()
        # what forced steps have shown already would show again when they run freely
        if not any(finding.code in ("CGD101", "CGD102", "CGD103") for finding in findings):
            self.progress.stage("free running", 1)
            findings += free_run_findings(self.arms, compared, self.progress, self.settings.values)
        return self._outcome(compared, findings)

    def _discover(self, plan: list[Planned]) -> None:
        self.progress.stage("finding the state", 3)
        self.progress.advance("eager steps")
        found = self.arms.discover(plan)
        each, state = found.step_seconds, sum(e.bytes for e in found.state)
        self.progress.say(
            f"{len(plan)} steps of about {each * 1000:.3g} ms, each run {_RUNS} times or more: some "
            f"{_RUNS * each * len(plan):.2g} s and the captures; {self.arms.memory.live_bytes / 2**20:.3g} MiB of live "
            f"memory watched, {state / 2**20:.3g} MiB of it state, up to {_COPIES * state / 2**20:.3g} MiB for copies"
        )
        if _COPIES * state > self.backend.free_bytes():
            raise Inconclusive(
                "there is not enough free device memory for copies of the state",
                seen=f"{_COPIES * state} bytes needed, {self.backend.free_bytes()} free",
                fix="use a smaller KV cache for this run",
            )
        self.progress.advance("captures")
        self.arms.capture_all(plan)
        self.progress.advance("graph steps")
        self.arms.discover_graphs(plan)

    def _watch(self, at: Planned | None) -> None:
        """Before a replay, tell what to say should it be the end; afterwards take it back."""
        if at is None:
            self.danger = None
            self.progress.journal_clear()
            return
        if self.suspicion is None or self.suspicion[0] != at.index:
            moved = moved_names(self.arms, at)
            self.suspicion = (at.index, failing_replay(at, moved, self._places(at, None), self.backend.name))
        self.danger, self.replays_before = self.suspicion[1], self.backend.log.replays
        self.progress.journal(self.danger)

    def _failed(self, plan: list[Planned], danger: Finding, error: Exception) -> Outcome:
        what = " ".join(str(error).split())[:200]
        finding = replace(danger, evidence={**danger.evidence, "error": f"{type(error).__name__}: {what}"})
        self.subject.not_checked.append("what comes after the replay that failed")
        return self._outcome(plan, [finding, *self._findings()])

    def _state_lost(self, plan: list[Planned], found: Replaced) -> Outcome:
        """No arm can start from state that moves from under it: this is mended first."""
        if not self.settings.values:
            found = replace(found, differences=tuple(without_values(found.differences)))
        at = found.at
        self.steps.append(Step(at.step, at.rows, str(at.key), "finding", {"kind": Kind.FROZEN.value}))
        self.subject.not_checked.append(f"all other steps, as long as `{found.names[0]}` is put in another's place")
        staging = places.staging(self.subject.target)
        return self._outcome(plan, [replaced_finding(found, staging, self.backend.name), *self._findings()])

    def _places(self, at: Planned, launched: Origin | None) -> Places:
        return Places(places.staging(self.subject.target), places.captured(self.arms, at), launched)

    def gap(self, result: Result, reference: Result) -> Gap:
        """How a result differs from another of the same step."""
        differences = compare(result.outputs, reference.outputs, self.settings.tolerances)
        if not self.settings.values:
            differences = without_values(differences)
        if same_state(result.state, reference.state):
            return Gap(tuple(differences))
        state = state_difference(
            self.arms.saved.memory,
            reference.state,
            result.state,
            self.arms.look_around().tensors,
            self.subject.reserved(),
        )
        return Gap(tuple(differences), state)

    def _step(self, at: Planned) -> None:
        arms, record = self.arms, StepRecord()
        arms.save()
        eager = arms.run(Arm.EAGER, at)
        if not any(isinstance(value, torch.Tensor) for value in eager.outputs.values()):
            raise Inconclusive(
                "the step puts out no tensor, so there is nothing to compare",
                seen=f"leaves of type {', '.join({type(leaf).__name__: None for leaf in eager.outputs.values()})}",
                fix="return the step's outputs: a tensor, or tensors in a dict, a list or a dataclass",
            )
        record.eager_control = self.gap(arms.run(Arm.EAGER, at), eager)
        replayed = arms.run(Arm.REPLAYED, at)
        if not self.subject.has_replayed(at):
            self.steps.append(
                Step(
                    at.step,
                    at.rows,
                    str(at.key),
                    "inconclusive",
                    {"reason": "the step replayed no graph"},
                )
            )
            arms.commit(at, eager)
            return
        record.replay_control = self.gap(arms.run(Arm.REPLAYED, at), replayed)
        record.replayed = self.gap(replayed, eager)
        reference, diagnosis = eager, Diagnosis()
        if needs_fresh(record) and not self._known_rounding(at, record):
            self._harm(at, record, eager, replayed)
        if record.harmed or record.replay_control.level is Level.LARGE:
            reference = self._same_padding(at, record, eager, replayed)
        if needs_fresh(record) and not self._known_rounding(at, record):
            # a mended replay that takes the process along must not take this finding along
            case = Case(at, Kind.UNTOLD, record, diagnosis, "", self._places(at, None), (), (at.step,), False)
            self.suspicion = (at.index, explain(case, self.backend.name)[0])
            diagnosis = self._against_fresh(at, record, reference, replayed)
        elif judge(record) is Kind.UNSTABLE and not self._unstable(at, _reference(record)):
            record.replay_control = Gap()
        kind = judge(record)
        if self.arms.found.replaced_by_reset and kind not in (Kind.CLEAN, Kind.NUMERICS, Kind.HARMLESS, Kind.PADDING):
            raise reset_not_in_place(self.arms.found.replaced_by_reset, at, record)
        if kind in (Kind.DIFFERS, Kind.UNTOLD) and diagnosis.culprits == [] and not self._again(at, record):
            kind = Kind.UNKNOWN
        # small, but writing a true input over a stale one takes it away: harm shown. Moved damage shows none.
        healed = diagnosis.culprits and all(remedy.cause is not Cause.PADDING for remedy in diagnosis.culprits)
        if healed and kind in (Kind.NUMERICS, Kind.HARMLESS) and record.replayed.outputs:
            kind = Kind.DIFFERS
        detail = {"kind": kind.value, "gap": str(record.padding or record.replayed)[:200]}
        if kind is Kind.PADDING:
            detail["reason"] = "the target has no update(), and the padding that the doctor makes up changes the step"
            self.subject.not_checked.append(MADE_UP_PADDING)
        self.steps.append(Step(at.step, at.rows, str(at.key), _VERDICTS[kind], detail))
        self._file(at, kind, record, diagnosis)
        arms.commit(at, eager)

    def _known_rounding(self, at: Planned, record: StepRecord) -> bool:
        """Whether an engine would capture everything anew for rounding that it was seen to do with this graph."""
        if not isinstance(self.subject, EngineSubject) or record.replayed.level is not Level.SMALL:
            return False
        seen = [s for s in self.steps if s.key == str(at.key) and s.detail.get("kind") == Kind.NUMERICS.value]
        return len(seen) >= _ROUNDING_SEEN and not record.replayed.state.suspicious

    def _harm(self, at: Planned, record: StepRecord, eager: Result, replayed: Result) -> None:
        """Does the graph's state change what later eager steps put out?"""
        state = record.replayed.state
        if not state.suspicious:
            return
        right = self.arms.go_on(at, eager.state, _HORIZON)
        wrong = self.arms.go_on(at, harmful(eager.state, replayed.state, state), _HORIZON)
        for later, (a, b) in enumerate(zip(wrong, right, strict=True), start=1):
            differences = compare(a.outputs, b.outputs, self.settings.tolerances)
            # where the state is unnamed, "large" has no meaning there: let the outputs say it
            named = UNNAMED not in state.names
            if differences and (named or any(d.level is Level.LARGE for d in differences)):
                record.harm_step = at.index + later
                return

    def _same_padding(self, at: Planned, record: StepRecord, eager: Result, replayed: Result) -> Result:
        """The eager result to compare with: with the graph's padding where that is the doctor's own invention."""
        subject = self.subject
        if not isinstance(subject, LoopSubject) or not subject.pads(at) or record.eager_control.level is Level.LARGE:
            return eager
        padded = self.arms.run(Arm.PADDED, at)
        record.padding, record.harm_step = record.replayed, None
        record.eager_control = self.gap(self.arms.run(Arm.PADDED, at), padded)
        record.replayed = self.gap(replayed, padded)
        if needs_fresh(record):
            self._harm(at, record, padded, replayed)
        return padded

    def _against_fresh(self, at: Planned, record: StepRecord, eager: Result, replayed: Result) -> Diagnosis:
        arms, subject = self.arms, self.subject
        diagnosis = Diagnosis()
        engine = isinstance(subject, EngineSubject)
        # nothing is tried on a sound step: an output has to differ, or a later one through the state
        harmed = bool(record.replayed.outputs) or record.harm_step is not None
        fresh_start = harmed and len(self.bad) < _MAX_DIAGNOSES
        old = []
        if engine and fresh_start:
            old = self.doctor.read(subject.held(at))
            diagnosis = self.doctor.before_recapture(at, eager, record.replayed)
        if not subject.can_recapture:
            return diagnosis
        try:
            arms.rewind()
            subject.recapture(at)
        except Inconclusive as reason:
            subject.not_checked.append(str(reason.what))
            return diagnosis
        fresh = arms.run(Arm.FRESH, at)
        record.fresh_control = self.gap(arms.run(Arm.FRESH, at), fresh)
        record.fresh = self.gap(fresh, eager)
        record.fresh_replayed = self.gap(replayed, fresh)
        if record.fresh_replayed.level is Level.SMALL:
            # other kernels (a compiled module that is run uncompiled by now) round otherwise
            before = old if engine else self.doctor.read(subject.held(at))
            now = self.doctor.read(subject.held(at, fresh=True))
            record.same_nodes = len(before) == len(now) and all(
                a and b and first_unlike(a, b) is None for a, b in zip(before, now, strict=True)
            )
        if not engine:
            if subject.form == "loop" and judge(record) is Kind.DIFFERS:
                record.padded = self.gap(fresh, arms.run(Arm.PADDED, at))
            if fresh_start:
                frozen = judge(record) is Kind.FROZEN
                diagnosis = self.doctor.with_fresh(at, fresh, eager, record.replayed, frozen)
        elif not diagnosis.culprits and judge(record) is Kind.FROZEN and diagnosis.scene is not None:
            diagnosis = self.doctor.after_recapture(at, old, diagnosis.scene, replayed)
        subject.drop_fresh()
        return diagnosis

    def _unstable(self, at: Planned, eager: Arm) -> bool:
        """Alternate before speaking: eager equal each time, replays unequal once more."""
        unequal = 0
        for _ in range(_REPEATS):
            if self.gap(self.arms.run(eager, at), self.arms.run(eager, at)).level is not Level.EQUAL:
                return False
            unequal += self.gap(self.arms.run(Arm.REPLAYED, at), self.arms.run(Arm.REPLAYED, at)).level is Level.LARGE
        return unequal > 0

    def _again(self, at: Planned, record: StepRecord) -> bool:
        """A measured difference has to be there n of n times, and its control never."""
        arm = Arm.FRESH if record.fresh is not None and isinstance(self.subject, EngineSubject) else Arm.REPLAYED
        for _ in range(_REPEATS):
            eager = self.arms.run(_reference(record), at)
            if self.gap(self.arms.run(_reference(record), at), eager).level is Level.LARGE:
                return False
            if self.gap(self.arms.run(arm, at), eager).level is not record.replayed.level:
                return False
        return True

    def _file(self, at: Planned, kind: Kind, record: StepRecord, diagnosis: Diagnosis) -> None:
        if _VERDICTS[kind] == "finding":
            faults = one_fault_each(diagnosis.culprits)
            named = bool(faults)
            for number, known in enumerate(self.bad):
                alike = known.kind is kind
                if alike and named and not known.diagnosis.culprits:
                    # what could not be named at one step was named at another
                    known = self.bad[number] = replace(known, diagnosis=diagnosis)
                shared = one_fault_each(known.diagnosis.culprits).keys() & faults.keys()
                if shared or (alike and not named):
                    self.bad[number] = replace(known, steps=(*known.steps, at.step))
                    faults = {key: some for key, some in faults.items() if key not in shared}
                    if not faults:
                        return
            diagnosis = replace(diagnosis, culprits=[r for some in faults.values() for r in some])
            where = self._places(at, diagnosis.launched)
            truth = self.subject.truth(at)
            owners = tuple(filter(None, (owner(place, truth) for place in record.replayed.state.places)))
            module, values = self._module(at), self.settings.values
            self.bad.append(Case(at, kind, record, diagnosis, module, where, owners, (at.step,), values))
        elif kind is Kind.UNKNOWN and not any(n.code == "CGD001" for n in self.notes):
            self.notes.append(unknown_note(at, record, self.backend.name))
        elif kind in (Kind.NUMERICS, Kind.HARMLESS) and not any(
            n.code == "CGD107" and n.key == str(at.key) for n in self.notes
        ):
            self.notes.append(numerics_note(at, kind, record, self.backend.name))

    def _module(self, at: Planned) -> str:
        """First diverging module, in a graph captured where the old one was: at the step behind the plan."""
        if isinstance(self.subject, RunnerSubject):
            return ""
        return first_diverging_module(self.arms, at, replace(at, step=self.arms.beyond))

    def _findings(self) -> list[Finding]:
        findings = []
        found = self.arms.found
        if found.unrestored:
            findings.append(reset_finding(found.unrestored, self.backend.name))
        for case in self.bad:
            findings += explain(case, self.backend.name)
        return findings + self.notes

    def _outcome(self, plan: list[Planned], findings: list[Finding]) -> Outcome:
        not_checked = [*self.subject.not_checked, *self.backend.not_checked()]
        if not self.arms.found.walked_all:
            not_checked.append(
                "the target's objects are too many to walk: some names and host values were not looked at"
            )
        unjudged = [s for s in self.steps if s.verdict == "inconclusive"]
        if unjudged:
            not_checked.append(
                f"{len(unjudged)} of {len(self.steps)} steps could not be judged "
                f"({unjudged[0].detail.get('reason') or 'eager is not reproducible there'})"
            )
        spoken = [f for f in findings if f.severity.rank > 0]
        judged = len(self.steps) - len(unjudged)
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
                "graphs": len({str(at.key) for at in plan}),
                "batch sizes": sorted({at.rows for at in plan}),
                "runs": self.arms.runs,
                "state bytes": sum(e.bytes for e in self.arms.found.state),
                "host values that steps move": len(self.arms.found.host_moves),
            },
            steps=tuple(sorted(self.steps, key=lambda s: s.index)),
            findings=tuple(findings),
            rules=RULES,
        )


def _reference(record: StepRecord) -> Arm:
    """The arm that the replay is compared with."""
    return Arm.EAGER if record.padding is None else Arm.PADDED


__all__ = ["NAME", "NEEDS", "RULES", "DoctorError", "StateDifference", "run", "subject_of"]
