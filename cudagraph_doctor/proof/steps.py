"""Steps one after the other: each is run in its arms, judged, and diagnosed if it is bad.

`verdict.judge` says what a step is, `diagnose.Doctor` who did it, `cases.merge` whether that is known already.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from functools import reduce

import torch

from cudagraph_doctor.errors import Inconclusive, TargetError
from cudagraph_doctor.findings import Finding, Step
from cudagraph_doctor.given_names import reserved_rows
from cudagraph_doctor.proof import places
from cudagraph_doctor.proof.arms import UNNAMED, Arm, Arms, Result
from cudagraph_doctor.proof.cases import Case, merge
from cudagraph_doctor.proof.compare import Level, compare, is_given, without_values
from cudagraph_doctor.proof.danger import Danger
from cudagraph_doctor.proof.diagnose import Diagnosis, Doctor, MoreRemedies
from cudagraph_doctor.proof.engine import EngineSubject
from cudagraph_doctor.proof.exact import exact_outputs
from cudagraph_doctor.proof.loop import LoopSubject
from cudagraph_doctor.proof.nodes import first_unlike
from cudagraph_doctor.proof.notes import MADE_UP_PADDING, numerics_note, reset_not_in_place, unknown_note
from cudagraph_doctor.proof.probes import first_diverging_module
from cudagraph_doctor.proof.repair import Cause
from cudagraph_doctor.proof.runner import RunnerSubject
from cudagraph_doctor.proof.shape import Outputs, parts_by_rounding
from cudagraph_doctor.proof.state_changes import same_state
from cudagraph_doctor.proof.state_diff import harmful, owner, state_difference
from cudagraph_doctor.proof.subject import Planned
from cudagraph_doctor.proof.verdict import Counted, Gap, Kind, StepRecord, judge, needs_fresh, worse
from cudagraph_doctor.proof.wording import explain
from cudagraph_doctor.settings import Settings

HORIZON = 6
"""Eager steps run on from a differing state to see whether it does harm."""
_REPEATS = 4
"""Further pairs of runs before a finding is spoken: with those of every step, five of each."""
_ROUNDING_SEEN = 2
"""Steps of one graph of an engine at which rounding is checked against a recapture; later ones are taken as such."""
_MAX_DIAGNOSES = 4
"""Bad steps diagnosed from scratch; later ones are compared with the culprits known by then."""

_VERDICTS = {
    Kind.CLEAN: "clean",
    Kind.NUMERICS: "note",
    Kind.HARMLESS: "note",
    Kind.SHAPE: "note",
    Kind.UNKNOWN: "inconclusive",
    Kind.PADDING: "inconclusive",
    Kind.FROZEN: "finding",
    Kind.DIFFERS: "finding",
    Kind.UNTOLD: "finding",
    Kind.UNSTABLE: "finding",
}
_NO_TRUTH = (Cause.PADDING, Cause.PADDING_VALUE)
"""Remedies that write something legal, which need not be what belongs there."""


class Steps:
    """Plays steps and keeps what came out of them.

    Args:
        subject: the target.
        arms: its arms, brought to before the first step (`Arms.begin`).
        danger: told what is found before further replays are tried.
        settings: tolerances, and whether values may be shown.
        more: asked for further remedies, see `Doctor`.
    """

    def __init__(
        self,
        subject: LoopSubject | EngineSubject,
        arms: Arms,
        danger: Danger,
        settings: Settings,
        more: MoreRemedies = lambda _bad: (),
    ) -> None:
        self.subject = subject
        self.arms = arms
        self.played: list[Step] = []
        self.cases: list[Case] = []
        """Bad steps, each fault's first one, with all steps that it was seen at."""
        self.notes: list[Finding] = []
        self._danger = danger
        self._settings = settings
        self._exact: frozenset[str] = frozenset()
        """Outputs of the step being played that no rounding can have reached, as far as that was asked."""
        self._doctor = Doctor(arms, self.gap, more)

    def gap(self, result: Result, reference: Result) -> Gap:
        """How a result differs from another of the same step."""
        differences = compare(result.outputs, reference.outputs, self._settings.tolerances, self._exact)
        if not self._settings.values:
            differences = without_values(differences)
        if same_state(result.state, reference.state):
            return Gap(tuple(differences))
        around = self.arms.look_around()
        reserved = reserved_rows(self.subject.reserved(), around)
        state = state_difference(self.arms.saved.memory, reference.state, result.state, around.tensors, reserved)
        return Gap(tuple(differences), state)

    def play(self, at: Planned) -> None:
        """Run the step in its arms from the state as it is, judge it, and go on from the eager state.

        Raises Inconclusive if there is nothing to compare, TargetError if reset() replaces state.
        """
        arms, record = self.arms, StepRecord()
        self._exact = frozenset()
        arms.save()
        eager = arms.run(Arm.EAGER, at)
        if not any(isinstance(value, torch.Tensor) for value in eager.outputs.values()):
            raise Inconclusive(
                "the step puts out no tensor, so there is nothing to compare",
                seen=f"leaves of type {', '.join({type(leaf).__name__: None for leaf in eager.outputs.values()})}",
                fix="return the step's outputs: a tensor, or tensors in a dict, a list or a dataclass",
            )
        eager_again, replayed = arms.run(Arm.EAGER, at), arms.run(Arm.REPLAYED, at)
        if not self.subject.has_replayed(at):
            reason = "the step replayed no graph"
            self.played.append(Step(at.step, at.rows, str(at.key), "inconclusive", {"reason": reason}))
            arms.commit(at, eager)
            return
        replayed_again = arms.run(Arm.REPLAYED, at)
        if self._may_be_counts(self.gap(replayed, eager)):
            self._exact = exact_outputs(arms, at)
        record.eager_control = self.gap(eager_again, eager)
        record.replay_control, record.replayed = self.gap(replayed_again, replayed), self.gap(replayed, eager)
        reference, diagnosis = eager, Diagnosis()
        rounding = self._known_rounding(at, record)
        if needs_fresh(record) and not rounding:
            self._harm(at, record, eager, replayed)
        if record.harmed or record.replay_control.level is Level.LARGE:
            reference = self._same_padding(at, record, eager, replayed)
        unstable = judge(record) is Kind.UNSTABLE and self._unstable(at, record)
        if judge(record) is Kind.UNSTABLE and not unstable:
            # the first replay alone was another one: an engine may have captured on the way
            replayed, record.replay_control = replayed_again, Gap()
            record.replayed = self.gap(replayed, reference)
            if needs_fresh(record):
                self._harm(at, record, reference, replayed)
        if record.harmed and needs_fresh(record) and not rounding:
            self._count(at, record, reference, replayed)
        if needs_fresh(record) and not rounding:
            where = places.around(self.subject.target, arms, at)
            case = Case(at, Kind.UNTOLD, record, diagnosis, "", where, (), (at.step,), False)
            self._danger.suspect(at, explain(case, arms.backend.name)[0])
            diagnosis = self._against_fresh(at, record, reference, replayed)
        elif judge(record) is Kind.UNSTABLE and not (unstable or self._unstable(at, record)):
            record.replay_control = Gap()  # what the count showed was there a few times only
        kind = judge(record)
        if self.arms.found.replaced_by_reset and kind not in (Kind.CLEAN, Kind.NUMERICS, Kind.HARMLESS, Kind.PADDING):
            raise reset_not_in_place(self.arms.found.replaced_by_reset, at, record)
        if kind is Kind.DIFFERS and diagnosis.culprits == [] and self._by_shape(at, record, replayed):
            kind = Kind.SHAPE
        if kind in (Kind.DIFFERS, Kind.UNTOLD) and diagnosis.culprits == []:
            counted = record.counted or self._count(at, record, reference, replayed)
            if counted.differs < counted.of or counted.control:
                kind = Kind.UNKNOWN  # a measured difference has to be there n of n times, and its control never
        # small, but writing a true input over a stale one takes it away: harm shown. Moved damage shows none, and other
        # padding rounds otherwise.
        healed = diagnosis.culprits and all(remedy.cause not in _NO_TRUTH for remedy in diagnosis.culprits)
        if healed and kind in (Kind.NUMERICS, Kind.HARMLESS) and record.replayed.outputs:
            kind = Kind.DIFFERS
        detail = {"kind": kind.value, "gap": str(record.padding or record.replayed)[:200]}
        if kind is Kind.PADDING:
            detail["reason"] = "the target has no update(), and the padding that the doctor makes up changes the step"
            self.subject.not_checked.append(MADE_UP_PADDING)
        self.played.append(Step(at.step, at.rows, str(at.key), _VERDICTS[kind], detail))
        self._file(at, kind, record, diagnosis)
        arms.commit(at, eager)

    def _may_be_counts(self, gap: Gap) -> bool:
        """Whether what would pass for rounding may be whole numbers that are wrong."""
        given = self._settings.tolerances
        apart = [d for d in gap.outputs if (d.integral or d.max_abs >= 1) and not is_given(d.path, given)]
        return gap.output_level is Level.SMALL and bool(apart)

    def _known_rounding(self, at: Planned, record: StepRecord) -> bool:
        """Whether an engine would capture everything anew for rounding that it was seen to do with this graph."""
        if not isinstance(self.subject, EngineSubject) or record.replayed.level is not Level.SMALL:
            return False
        seen = [s for s in self.played if s.key == str(at.key) and s.detail.get("kind") == Kind.NUMERICS.value]
        return len(seen) >= _ROUNDING_SEEN and not record.replayed.state.suspicious

    def _harm(self, at: Planned, record: StepRecord, eager: Result, replayed: Result) -> None:
        """Does the graph's state change what later eager steps put out?"""
        state = record.replayed.state
        if not state.suspicious:
            return
        right = self.arms.go_on(at, eager.state, HORIZON)
        wrong = self.arms.go_on(at, harmful(eager.state, replayed.state, state), HORIZON)
        for later, (a, b) in enumerate(zip(wrong, right, strict=True), start=1):
            differences = compare(a.outputs, b.outputs, self._settings.tolerances)
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

    def _by_shape(self, at: Planned, record: StepRecord, replayed: Result) -> bool:
        """Whether eager, at the graph's batch size and with other padding, does just what the graph does.

        Then staging is right and padding rows change no live row. What is left is the size: it may round otherwise,
        which a decision in the step makes large; but a step that counts its rows is at fault.
        """
        subject = self.subject
        if not isinstance(subject, LoopSubject) or subject.form != "loop" or at.key == at.rows:
            return False
        if any(difference.exact for difference in record.replayed.outputs):
            return False
        try:
            wide = self.arms.run(Arm.WIDENED, at)
        except TargetError:  # static inputs are laid out in the target's own way
            return False
        if self.gap(replayed, wide).outputs or record.replayed.output_level is not Level.LARGE:
            return False
        apart = StepRecord(replayed=self.gap(replayed, wide))
        self._harm(at, apart, wide, replayed)
        if apart.harm_step is not None:
            return False
        runs = [Outputs(self.arms.backend.free_bytes() // 4) for _ in range(2)]
        for arm, outputs in zip((Arm.EAGER, Arm.WIDENED), runs, strict=True):
            subject.around_forward = outputs
            try:
                self.arms.run(arm, at)
            finally:
                subject.around_forward = nullcontext()
        alike = all(outputs.complete for outputs in runs)
        return alike and parts_by_rounding(runs[0].seen, runs[1].seen, at.rows, int(str(at.key)))

    def _against_fresh(self, at: Planned, record: StepRecord, eager: Result, replayed: Result) -> Diagnosis:
        arms, subject = self.arms, self.subject
        diagnosis = Diagnosis()
        engine = isinstance(subject, EngineSubject)
        # nothing is tried on a sound step: an output has to differ, or a later one through the state
        harmed = bool(record.replayed.outputs) or record.harm_step is not None
        fresh_start = harmed and len(self.cases) < _MAX_DIAGNOSES
        old = []
        if engine and fresh_start:
            old = self._doctor.read(subject.held(at))
            diagnosis = self._doctor.before_recapture(at, eager, record.replayed)
            if diagnosis.culprits and record.counted is None:
                self._count(at, record, eager, replayed)
        if not subject.can_recapture:
            return diagnosis
        try:
            fresh = self._captured_now(at, record, eager, replayed)
            if engine and self.gap(fresh, eager).level is Level.LARGE:
                # captured before the step, at the host values of the one before: what the step sets may be baked in
                fresh = self._captured_now(at, record, eager, replayed, stepped=True)
        except Inconclusive as reason:
            subject.not_checked.append(str(reason.what))
            return diagnosis
        assert record.fresh_replayed is not None
        if record.fresh_replayed.level is Level.SMALL:
            # other kernels (a compiled module that is run uncompiled by now) round otherwise
            before = old if engine else self._doctor.read(subject.held(at))
            now = self._doctor.read(subject.held(at, fresh=True))
            record.same_nodes = len(before) == len(now) and all(
                a and b and first_unlike(a, b) is None for a, b in zip(before, now, strict=True)
            )
        if subject.form == "loop" and judge(record) is Kind.DIFFERS:
            record.padded = self.gap(fresh, arms.run(Arm.PADDED, at))
        if judge(record) is Kind.FROZEN:
            # before the diagnosis, which writes into the graphs and captures others
            self._measure_again(at, record, eager, fresh, replayed)
        frozen = judge(record) is Kind.FROZEN
        if not engine and fresh_start:
            diagnosis = self._doctor.with_fresh(at, fresh, eager, record.replayed, frozen)
            if diagnosis.culprits and record.counted is None:
                self._count(at, record, eager, replayed)
        elif engine and not diagnosis.culprits and frozen and diagnosis.scene is not None:
            earlier = diagnosis
            diagnosis = self._doctor.after_recapture(at, old, diagnosis.scene, replayed)
            diagnosis.beside, diagnosis.names = earlier.beside, diagnosis.names | earlier.names
        subject.drop_fresh()
        return diagnosis

    def _captured_now(
        self, at: Planned, record: StepRecord, eager: Result, replayed: Result, stepped: bool = False
    ) -> Result:
        """The step by a graph captured now; with `stepped`, at the host values that it has set once it has run."""
        arms = self.arms
        arms.rewind()
        if stepped:
            self.subject.eager(at)
            arms.memory.restore(arms.saved)
        self.subject.recapture(at)
        fresh = arms.run(Arm.FRESH, at)
        record.fresh_control = self.gap(arms.run(Arm.FRESH, at), fresh)
        record.fresh, record.fresh_replayed = self.gap(fresh, eager), self.gap(replayed, fresh)
        return fresh

    def _count(self, at: Planned, record: StepRecord, eager: Result, replayed: Result) -> Counted:
        """Alternate before speaking: how often does the replay differ by as much, and how often eager from itself?

        What seldom differs from itself may pass its control by chance: what more runs show is added to the controls.
        """
        controls, gaps, noises = [record.eager_control], [record.replayed], [record.replay_control]
        for _ in range(_REPEATS):
            controls.append(self.gap(self.arms.run(_reference(record), at), eager))
            again = self.arms.run(Arm.REPLAYED, at)
            gaps.append(self.gap(again, eager))
            noises.append(self.gap(again, replayed))
        record.counted = counted = record.count(gaps, controls)
        record.eager_control = reduce(worse, controls)
        # a graph that reads memory which others write is wrong each time, and in another way each time
        if counted.differs < counted.of or counted.control:
            record.replay_control = reduce(worse, noises)
        return counted

    def _measure_again(self, at: Planned, record: StepRecord, eager: Result, fresh: Result, replayed: Result) -> None:
        """The same for what seems frozen, held against the graph captured now.

        An engine's old graph is gone by now; only the new one can be run again there.
        """
        if record.counted is None and not isinstance(self.subject, EngineSubject):
            self._count(at, record, eager, replayed)
        assert record.fresh_replayed is not None and record.fresh_control is not None
        gaps, controls = [record.fresh_replayed], [record.fresh_control]
        for _ in range(_REPEATS):
            again = self.arms.run(Arm.FRESH, at)
            gaps.append(self.gap(replayed, again))
            controls.append(self.gap(again, fresh))
        record.counted_fresh = StepRecord(replayed=record.fresh_replayed).count(gaps, controls)
        record.fresh_control = reduce(worse, controls)

    def _unstable(self, at: Planned, record: StepRecord) -> bool:
        """Alternate before speaking: eager equal each time, replays unequal once more."""
        unequal, eager = 1, _reference(record)
        for _ in range(_REPEATS):
            if self.gap(self.arms.run(eager, at), self.arms.run(eager, at)).level is not Level.EQUAL:
                return False
            unequal += self.gap(self.arms.run(Arm.REPLAYED, at), self.arms.run(Arm.REPLAYED, at)).level is Level.LARGE
        if unequal == 1:
            return False
        record.counted = Counted(unequal, 1 + _REPEATS, 0, 1 + _REPEATS)
        return True

    def _file(self, at: Planned, kind: Kind, record: StepRecord, diagnosis: Diagnosis) -> None:
        backend = self.arms.backend.name
        if _VERDICTS[kind] == "finding":
            culprits = merge(self.cases, at, kind, diagnosis, self.arms.found.graphs)
            if culprits is None:
                return
            truth = self.subject.truth(at)
            owners = tuple(filter(None, (owner(place, truth) for place in record.replayed.state.places)))
            diagnosis = replace(diagnosis, culprits=culprits)
            where = places.around(self.subject.target, self.arms, at, diagnosis.launched)
            module, values = self._module(at), self._settings.values
            own = self.subject.form != "loop"
            lacks = self.subject.to_recapture if kind is Kind.UNTOLD else ""
            self.cases.append(Case(at, kind, record, diagnosis, module, where, owners, (at.step,), values, own, lacks))
        elif kind is Kind.UNKNOWN and not any(n.code == "CGD001" for n in self.notes):
            self.notes.append(unknown_note(at, record, backend))
        elif kind in (Kind.NUMERICS, Kind.HARMLESS, Kind.SHAPE) and not any(
            n.code == "CGD107" and n.key == str(at.key) for n in self.notes
        ):
            self.notes.append(numerics_note(at, kind, record, backend))

    def _module(self, at: Planned) -> str:
        """First diverging module, in a graph captured where the old one was: at the step behind the plan."""
        if isinstance(self.subject, RunnerSubject):
            return ""
        return first_diverging_module(self.arms, at, replace(at, step=self.arms.beyond))


def _reference(record: StepRecord) -> Arm:
    """The arm that the replay is compared with."""
    return Arm.EAGER if record.padding is None else Arm.PADDED
