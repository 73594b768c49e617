"""Bad steps, and which of them are one fault: what one edit of the user's code would mend is told once. Plain data."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cudagraph_doctor.proof.diagnose import Diagnosis
from cudagraph_doctor.proof.places import Places
from cudagraph_doctor.proof.repair import Cause, Remedy
from cudagraph_doctor.proof.subject import Planned
from cudagraph_doctor.proof.verdict import Kind, StepRecord

Fault = tuple[str, str]
"""Cause and name: what tells faults apart."""
_SUBSCRIPT = re.compile(r"\[[^\[\]]*\]|\.\d+(?=[.\[]|$)")
_TOLD = 16
"""Graphs that are told of one fault."""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """The same fault in a graph of another key."""

    fault: Fault
    """As the case has it."""
    key: str
    name: str
    """Of the culprit there; "" if nobody was named."""


@dataclass(frozen=True, slots=True)
class Case:
    """A bad step, diagnosed."""

    at: Planned
    kind: Kind
    record: StepRecord
    diagnosis: Diagnosis
    module: str
    """First module whose output differs; "" if not known."""
    places: Places
    owners: tuple[str, ...]
    """Whose the cache rows are that differ: "slot 19: row 2 of slot_mapping"."""
    steps: tuple[int, ...]
    """All steps that this was seen at."""
    values: bool
    """Whether values may be shown."""
    own_captures: bool = False
    """Whether the target captures its graphs itself, at host values of its own choice."""
    to_recapture: str = ""
    """What to do about the target for a graph captured now, which this step was not held against for want of it."""
    elsewhere: tuple[Elsewhere, ...] = ()
    """Graphs of other keys that have the faults as well."""

    def also_in(self, fault: Fault | None = None) -> list[str]:
        """The other graphs that a fault is in, in words; with the culprit's name where that is another there.

        Args:
            fault: as `one_fault_each` has it; None: what nobody could be accused of.
        """
        asked = fault or NOBODY
        told = [one for one in self.elsewhere if one.fault == asked]
        return [
            f"graph {one.key}" if one.name in ("", asked[1]) else f"`{one.name}` in graph {one.key}"
            for one in told[:_TOLD]
        ]


NOBODY: Fault = ("", "")


def one_fault_each(culprits: Sequence[Remedy]) -> dict[Fault, list[Remedy]]:
    """Group what one edit of the user's code would mend.

    One value baked into several kernels is one fault, and so are the tensors of one object that was put in another's
    place. The keys tell faults apart over steps and graphs: cause and name.
    """
    groups: dict[tuple[str, ...], list[Remedy]] = {}
    for remedy in culprits:
        # how much of an input is stale depends on the step: not refreshed and refreshed in part are one fault
        cause = Cause.NOT_REFRESHED if remedy.cause is Cause.PARTLY_REFRESHED else remedy.cause
        together = remedy.name
        if remedy.cause is Cause.BAKED and remedy.was is not None:
            together = f"{remedy.was!r} {remedy.expected!r}"
        elif remedy.cause is Cause.REBOUND and "." in remedy.name and remedy.kind == "input":
            together = remedy.name.rpartition(".")[0]
        groups.setdefault((cause.value, together), []).append(remedy)
    return {
        (cause, together if some[0].cause is Cause.REBOUND else some[0].name): some
        for (cause, together), some in groups.items()
    }


def merge(
    cases: list[Case],
    at: Planned,
    kind: Kind,
    diagnosis: Diagnosis,
    graphs: Mapping[int, frozenset[int]] | None = None,
) -> list[Remedy] | None:
    """Add the step to the cases that it is another instance of, in place.

    Args:
        cases: so far.
        at: the step.
        kind: what it is.
        diagnosis: of the step.
        graphs: which graphs steps replay, by their positions: what is in one graph is not told of another key's.

    Returns:
        The culprits that no case has yet, for a case of their own; None if nothing is left to be told.
    """
    faults = one_fault_each(diagnosis.culprits)
    named = bool(faults)
    for number, known in enumerate(cases):
        alike = known.kind is kind
        if alike and named and not known.diagnosis.culprits:
            # what could not be named at one step was named at another
            known = cases[number] = replace(known, diagnosis=diagnosis, elsewhere=())
        shared = {
            fault: theirs
            for fault in faults
            for theirs in one_fault_each(known.diagnosis.culprits)
            if _is_same(theirs, known.at, known.diagnosis, fault, at, diagnosis)
        }
        if not named and alike and _names(diagnosis) <= _names(known.diagnosis):
            shared = {NOBODY: next(iter(one_fault_each(known.diagnosis.culprits)), NOBODY)}
        if shared:
            its = (graphs or {}).get(at.index)
            same = its is not None and its == (graphs or {}).get(known.at.index)
            cases[number] = _seen_at(known, at, {} if same else shared)
            faults = {fault: some for fault, some in faults.items() if fault not in shared}
            if not faults:
                return None
    return [remedy for some in faults.values() for remedy in some]


def _names(diagnosis: Diagnosis) -> set[str]:
    """What is known to be wrong besides, where nothing heals."""
    return {remedy.name for remedy in diagnosis.beside}


def _seen_at(known: Case, at: Planned, shared: Mapping[Fault, Fault]) -> Case:
    """The case with one more step, and its graph where that is another one."""
    there = {(one.fault, one.key) for one in known.elsewhere}
    more = [
        Elsewhere(theirs, str(at.key), fault[1])
        for fault, theirs in shared.items()
        if at.key != known.at.key and (theirs, str(at.key)) not in there
    ]
    return replace(known, steps=(*known.steps, at.step), elsewhere=(*known.elsewhere, *more))


def _is_same(a: Fault, at_a: Planned, found_a: Diagnosis, b: Fault, at_b: Planned, found_b: Diagnosis) -> bool:
    """Whether two faults are one: the same name; or, in graphs of two keys, the same line or place for each graph."""
    if a == b:
        return True
    if at_a.key == at_b.key or a[0] != b[0]:
        return False
    if a[0] == Cause.BAKED:  # graphs of other sizes run other kernels
        lines = [found.launched.location if found.launched else None for found in (found_a, found_b)]
        return lines[0] is not None and lines[0] == lines[1]
    return _without_keys(a[1], at_a) == _without_keys(b[1], at_b)


def _without_keys(name: str, at: Planned) -> str:
    """A path with what tells one graph's things from another's taken out: subscripts, and the key by its name."""
    return ".".join("[]" if part == str(at.key) else part for part in _SUBSCRIPT.sub("[]", name).split("."))
