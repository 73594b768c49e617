"""From diagnosed steps to flags and trials: which rule, which name, which line. Reads remedies, makes plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cudagraph_doctor.findings import Location
from cudagraph_doctor.graph.names import readable
from cudagraph_doctor.proof import repaired
from cudagraph_doctor.proof.cases import NOBODY, Case, Fault, one_fault_each
from cudagraph_doctor.proof.compare import Level
from cudagraph_doctor.proof.repair import Cause, Remedy, in_staging
from cudagraph_doctor.proof.verdict import Counted
from cudagraph_doctor.proof.verdict import Kind as Verdict
from cudagraph_doctor.proof.wording import short
from cudagraph_doctor.replays import candidates
from cudagraph_doctor.replays.baked import Judged, weak_keys
from cudagraph_doctor.replays.candidates import Candidate, named
from cudagraph_doctor.replays.content import HOLDS, changes
from cudagraph_doctor.replays.model import Flag, History, Measured, Region, Replay, Trial

CODES = {
    Cause.NOT_REFRESHED: "CGD301",
    Cause.PARTLY_REFRESHED: "CGD302",
    Cause.STALE_TAIL: "CGD303",
    Cause.WRONG_SLICE: "CGD304",
    Cause.REBOUND: "CGD305",
    Cause.REUSED: "CGD306",
    Cause.PADDING: "CGD309",
    Cause.OVERWRITTEN: "CGD314",
    Cause.PADDING_VALUE: "CGD310",
    Cause.RANDOM_STATE: "CGD315",
    Cause.SKIPPED: "CGD316",
    Cause.ATTRIBUTE: "CGD317",
    Cause.BAKED: "CGD320",
    Cause.LEFT_OUT: "CGD320",
    Cause.UNINITIALISED: "CGD326",
}
"""By what heals."""
_FROM_READINGS = ("CGD301", "CGD302", "CGD303", "CGD316", "CGD318")
"""What the readings of all replays tell better than one step does."""


@dataclass(slots=True)
class Accused:
    """What the diagnosed steps came to."""

    flags: list[Flag] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)
    unexplained: list[Case] = field(default_factory=list)
    """Bad steps at which nothing was named."""
    mended: set[int] = field(default_factory=set)
    """Addresses of memory that another tensor is in the place of by now: it has a name, whoever owns it."""


@dataclass(frozen=True, slots=True)
class _Accuser:
    history: History
    judged: Judged
    own_keys: bool
    """Whether the runner has keys of its own choice."""
    values: bool
    lost: frozenset[str] = frozenset()
    """Keys of graphs that were shown to read memory whose owner is gone."""

    def accuse(self, cases: Sequence[Case]) -> Accused:
        """Flags of all cases; what one edit of the user's code mends is one flag."""
        accused = Accused()
        for case in cases:
            replay = next((n for n, r in enumerate(self.history.replays) if r.index == case.at.index), None)
            if case.diagnosis.culprits:
                for fault, group in one_fault_each(case.diagnosis.culprits).items():
                    self._of_remedies(case, fault, group, replay, accused)
                continue
            for fault, group in one_fault_each(case.diagnosis.beside).items():
                self._of_remedies(case, fault, group, replay, accused)
            if case.kind is Verdict.FROZEN and (flag := self._of_captures(case, replay)) is not None:
                _add(accused.flags, flag)
            else:
                accused.unexplained.append(case)
                self._in_vain(case, replay, accused)
        return accused

    def _in_vain(self, case: Case, replay: int | None, accused: Accused) -> None:
        """What readings show to be wrong, and was put right, without healing the step."""
        known = {flag.region for flag in accused.flags}
        for flag in self.history.flags:
            if flag.name in case.diagnosis.names and flag.region not in known and replay is not None:
                accused.flags.append(replace(flag, evidence={**flag.evidence, "tried": True}))
                accused.trials.append(Trial(replay, (len(accused.flags) - 1,), False, 0))

    def _of_remedies(
        self, case: Case, fault: Fault, group: Sequence[Remedy], replay: int | None, accused: Accused
    ) -> None:
        first = group[0]
        region = self._region(first)
        together = len(group) > 1 and first.cause is Cause.REBOUND
        name = first.name.rpartition(".")[0] if together else self._name(first, region)
        code, evidence = self._code(first, region, case), dict[str, Any]()
        where, held, expected = first.where or (_launched(case) if first.edits else ""), *_both(first)
        known = next((f for f in self.history.flags if region is not None and f.region == region.id), None)
        if known is not None and known.code in _FROM_READINGS and CODES[first.cause] in _FROM_READINGS:
            code, where, evidence = known.code, known.where or where, known.evidence
        elif known is not None:
            evidence = known.evidence
        elif region is not None:  # an engine does not tell what should be there
            replays = self.history.replays
            here = {n for n, one in enumerate(replays) if one.key == str(case.at.key)}
            evidence = changes([r for r in self.history.readings if r.region == region.id and r.replay in here])
        if len(group) > 1:
            evidence = {**evidence, "names": [remedy.name for remedy in group]}
        candidate = self._candidate(first, case)
        if candidate is not None and candidate.follows:
            evidence = {**evidence, "follows": candidate.follows}
        line = first.notes.get("line")  # where it is known, staging is not at fault
        flag = Flag(
            code,
            replay,
            None if region is None else region.id,
            name=name,
            kind="weight" if code == "CGD308" else first.accused,
            where=where,
            held=held if self.values else None,
            expected=expected if self.values and first.cause is not Cause.PADDING else None,
            evidence={**evidence, **_seen(case, first.cause.value, fault), **repaired.of_group(group)},
            **_places(case, bool(first.edits) or first.kind == "parameter", line is None and in_staging(first), line),
        )
        size = sum(remedy.bytes for remedy in group)
        if _swapped_with_known(accused, flag, size):
            return
        position = _add(accused.flags, flag)
        if first.cause is Cause.REBOUND:
            accused.mended |= {remedy.buffer.data_ptr() for remedy in group if remedy.buffer is not None}
        if case.diagnosis.confirmed and replay is not None:
            accused.trials.append(Trial(replay, (position,), True, size))
        elif not case.diagnosis.culprits and replay is not None:
            accused.trials.append(Trial(replay, (position,), False, size))

    def _of_captures(self, case: Case, replay: int | None) -> Flag | None:
        """Nothing could be mended, but captures of other steps launch something else."""
        unlike = case.diagnosis.unlike
        if unlike is not None:
            node = unlike.new or unlike.old
            assert node is not None
            launch = unlike.old is not None and unlike.new is not None and unlike.old.name == unlike.new.name
            held, expected = (
                "nothing" if one is None else _launch(one) if launch else readable(one.name)
                for one in (unlike.old, unlike.new)
            )
            return Flag(
                "CGD322" if launch else "CGD323",
                replay,
                name=readable(node.name),
                kind="launch" if launch else "node",
                where=f"node {unlike.index}" + (f", {told}" if (told := _launched(case)) else ""),
                held=held,
                expected=expected,
                evidence={**_seen(case, "other launches"), **repaired.of_node(case.at.key, unlike.index)},
                **_places(case, launched=True),
            )
        there = [one for one in self.judged.candidates if one.key == str(case.at.key)]
        if not there or str(case.at.key) in self.lost:  # that is shown, and a candidate is not
            return None
        return Flag(
            self._code_of_candidate(there[0]),
            replay,
            name=named(there[0]),
            kind="parameter",
            evidence={**_seen(case, there[0].kind.value), "candidates": [named(one) for one in there[:8]]},
            **_places(case, launched=True),
        )

    def _code(self, remedy: Remedy, region: Region | None, case: Case) -> str:
        if remedy.cause is Cause.BAKED and remedy.notes.get("opaque"):
            return candidates.CODES[candidates.Kind.OPAQUE]
        if remedy.cause is Cause.BAKED:
            candidate = self._candidate(remedy, case)
            return CODES[Cause.BAKED] if candidate is None else self._code_of_candidate(candidate)
        if remedy.cause is Cause.REBOUND and (remedy.kind == "weight" or (region and region.kind == "weight")):
            return "CGD308"
        return CODES[remedy.cause]

    def _code_of_candidate(self, candidate: Candidate) -> str:
        weak = self.own_keys and any(candidate in key.candidates for key in weak_keys(self.judged.candidates))
        return "CGD325" if weak else candidates.CODES[candidate.kind]

    def _candidate(self, remedy: Remedy, case: Case) -> Candidate | None:
        """The candidate for the same parameter: of the very node where there is one, as kernels' names repeat."""
        alike = [one for one in self.judged.candidates if named(one) == remedy.name]
        nodes = {edit.node for _, edit in remedy.edits}
        return next((one for one in alike if one.key == str(case.at.key) and nodes & set(one.nodes)), None) or next(
            iter(alike), None
        )

    def _region(self, remedy: Remedy) -> Region | None:
        """The region that was captured by the remedy's name; of a tensor that was chosen, the one chosen then."""
        names = [str(remedy.was)] if remedy.cause is Cause.REBOUND and remedy.was else [remedy.name]
        regions = [region for region in self.history.regions if region.name in names]
        return regions[0] if regions else None

    def _name(self, remedy: Remedy, region: Region | None) -> str:
        """The place that another tensor was put in, where the two tensors have names of their own besides."""
        if remedy.cause is Cause.REBOUND and remedy.was and region is not None and region.aliases:
            return region.aliases[0]
        return remedy.name


def accuse(
    history: History,
    cases: Sequence[Case],
    judged: Judged,
    own_keys: bool,
    values: bool,
    lost: frozenset[str] = frozenset(),
) -> Accused:
    """Flags and trials of diagnosed steps.

    Args:
        history: with the flags that readings led to.
        cases: bad steps.
        judged: what captures of different steps have otherwise.
        own_keys: whether the runner looks its graphs up by keys of its own choice.
        values: whether values may be shown.
        lost: keys of graphs that were shown to read memory whose owner is gone: no candidate is accused beside that.
    """
    return _Accuser(history, judged, own_keys, values, lost).accuse(cases)


def measured(replay: Replay, case: Case) -> Replay:
    """The replay with what the arms showed."""
    gap, record = case.record.replayed, case.record
    against_fresh = None
    if record.fresh_replayed is not None:
        differs = record.fresh_replayed.level is not Level.EQUAL
        against_fresh = _measured(record.counted_fresh, differs, str(record.fresh_replayed))
    shown = _measured(record.counted, gap.output_level is not Level.EQUAL, str(gap))
    return replace(replay, against_eager=shown, against_fresh=against_fresh, harm_step=record.harm_step)


def _measured(counted: Counted | None, differs: bool, told: str) -> Measured:
    """As it was counted; what was not has its two runs, which were equal to each other."""
    known = counted or Counted(2, 2, 0, 2)
    return Measured(known.differs if differs else 0, known.of, known.control, known.control_of, told)


def _swapped_with_known(accused: Accused, flag: Flag, size: int) -> bool:
    """Whether the input that this one's buffer was swapped with is accused already: both are one fault, told there."""
    other = flag.evidence.get(HOLDS)
    for position, known in enumerate(accused.flags):
        if known.name == other and known.evidence.get(HOLDS) == flag.name:
            both = {
                key: [*known.evidence.get(key, ()), *flag.evidence.get(key, ())]
                for key in (repaired.PLACES, repaired.READ_BY)
            }
            names = [known.name, flag.name]
            where = known.where if known.where == flag.where else ""
            accused.flags[position] = replace(known, where=where, evidence={**known.evidence, **both, "names": names})
            accused.trials = [
                replace(trial, bytes=trial.bytes + size) if trial.flags == (position,) else trial
                for trial in accused.trials
            ]
            return True
    return False


def _add(flags: list[Flag], flag: Flag) -> int:
    """The flag's position; a fault that is known already is told once."""
    for position, known in enumerate(flags):
        if (known.code, known.name) == (flag.code, flag.name):
            return position
    flags.append(flag)
    return len(flags) - 1


def _both(remedy: Remedy) -> tuple[Any, Any]:
    if remedy.buffer is None:
        return remedy.was, remedy.expected
    return short(remedy.held), short(remedy.right)


def _seen(case: Case, cause: str, fault: Fault = NOBODY) -> dict[str, Any]:
    also_in = case.also_in(fault)
    return {
        "cause": cause,
        **({"also_in": also_in} if also_in else {}),
        "seen_at_steps": list(case.steps),
        "remedies_tried": case.diagnosis.tried,
        **({"forced": True} if case.diagnosis.forced else {}),
        **({"nodes_not_read": case.diagnosis.not_read} if case.diagnosis.not_read else {}),
    }


def _places(case: Case, launched: bool, staged: bool = False, line: object = None) -> dict[str, Any]:
    """The line to be mended, and what belongs to it.

    Args:
        case: what is known of the step.
        launched: whether it is the line that launches.
        staged: whether it may be one that stages.
        line: it, where the remedy knows it.
    """
    where = case.places
    origin = where.launched.location if launched and where.launched else None
    location, related = where.told(line if isinstance(line, Location) else origin, staged)
    return {"location": location, "related": related}


def _launched(case: Case) -> str:
    """The operator that launched the accused node: kernels of torch have names that few know."""
    origin = case.places.launched
    if origin is None or not origin.operator:
        return ""
    return f"launched by {origin.operator}" + (f" in {origin.module}" if origin.module else "")


def _launch(node: Any) -> dict[str, Any]:
    return {"grid": node.grid, "block": node.block, "shared_bytes": node.shared_bytes}
