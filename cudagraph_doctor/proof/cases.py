"""Bad steps, and which of them are one fault: what one edit of the user's code would mend is told once. Plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cudagraph_doctor.proof.diagnose import Diagnosis
from cudagraph_doctor.proof.places import Places
from cudagraph_doctor.proof.repair import Cause, Remedy
from cudagraph_doctor.proof.subject import Planned
from cudagraph_doctor.proof.verdict import Kind, StepRecord


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


def one_fault_each(culprits: Sequence[Remedy]) -> dict[tuple[str, str], list[Remedy]]:
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


def merge(cases: list[Case], at: Planned, kind: Kind, diagnosis: Diagnosis) -> list[Remedy] | None:
    """Add the step to the cases that it is another instance of, in place.

    Returns:
        The culprits that no case has yet, for a case of their own; None if nothing is left to be told.
    """
    faults = one_fault_each(diagnosis.culprits)
    named = bool(faults)
    for number, known in enumerate(cases):
        alike = known.kind is kind
        if alike and named and not known.diagnosis.culprits:
            # what could not be named at one step was named at another
            known = cases[number] = replace(known, diagnosis=diagnosis)
        shared = one_fault_each(known.diagnosis.culprits).keys() & faults.keys()
        if shared or (alike and not named):
            cases[number] = replace(known, steps=(*known.steps, at.step))
            faults = {key: some for key, some in faults.items() if key not in shared}
            if not faults:
                return None
    return [remedy for some in faults.values() for remedy in some]
