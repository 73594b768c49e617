"""What is said of the target and of the run rather than of a fault in a graph. Plain data in, plain data out."""

from __future__ import annotations

from collections.abc import Sequence

from cudagraph_doctor.errors import TargetError
from cudagraph_doctor.findings import Culprit, Finding, Proof, Severity
from cudagraph_doctor.proof.compare import Level
from cudagraph_doctor.proof.subject import Planned
from cudagraph_doctor.proof.verdict import Kind, StepRecord
from cudagraph_doctor.rules import RULES
from cudagraph_doctor.target import LOOP_OPTIONAL

MADE_UP_PADDING = (
    "steps whose padding rows the doctor had to make up, since these rows change what the step does: write "
    f"`{LOOP_OPTIONAL['update']}` in the target, which copies the fresh values into the leading rows and puts behind "
    "them what your runner puts there"
)
"""Not checked: the padding of a target without `update`."""


def kept_only_by_steps(names: Sequence[str]) -> str:
    """Not checked: memory that is another one after each step."""
    return (
        f"the memory of {_listed(names)}: each step puts another tensor there, which no replay of a captured step "
        "does, so only what steps put out was compared"
    )


def moved_by_staging(names: Sequence[str]) -> str:
    """Not checked: eager steps that read what graph steps have put in place, and do not repeat."""
    return (
        f"steps that read {_listed(names)}: staging puts another tensor there, so eager steps read another one after "
        "each graph step; let reset() bring it back, or write into the tensor that is there"
    )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(f"`{name}`" for name in names[:5]) + more


def numerics_note(at: Planned, kind: Kind, record: StepRecord, backend: str) -> Finding:
    """Rounding, what follows from it, or a state difference without effect."""
    fix = "Nothing to do."
    if kind is Kind.SHAPE:
        message = (
            f"The batch size alone changes the result: eager on {at.key} rows, {at.rows} of them live, puts out what "
            f"graph {at.key} does, bit for bit, and on {at.in_rows} it rounds otherwise and decides otherwise"
        )
    elif kind is Kind.HARMLESS:
        message = f"Graph {at.key} leaves other state than eager, without effect on any output looked at"
        fix = (
            "Rows that padding may write belong into reserved(). If these are none, look at what the padding rows of "
            "the static inputs hold: steps that were not played may read what they write."
        )
    else:
        message = f"Graph {at.key} and eager differ by rounding only"
    return Finding(
        "CGD107",
        f"{message}: {record.replayed}.",
        Severity.NOTE,
        Proof.MEASURED,
        fix,
        step=at.step,
        key=str(at.key),
        backend=backend,
        evidence={"kind": kind.value, "relative": record.replayed.relative},
    )


def unknown_note(at: Planned, record: StepRecord, backend: str) -> Finding:
    """Eager is no reference; or what differed does not come again each time."""
    what = f"Eager differs from eager at step {at.step} with {at.in_rows}: {record.eager_control}."
    if record.eager_control.level is Level.EQUAL:
        what = f"What differed at step {at.step} with {at.in_rows} did not at each repetition: {record.replayed}."
    return Finding(
        "CGD001",
        f"{what} The graph cannot be judged by it.",
        Severity.NOTE,
        Proof.MEASURED,
        "Seed the step, or let reset() restore what it depends on; declare its generators.",
        step=at.step,
        key=str(at.key),
        backend=backend,
    )


def reset_not_in_place(names: Sequence[str], at: Planned, record: StepRecord) -> TargetError:
    """State is another tensor after reset(), and a step cannot be judged for it."""
    gap = record.eager_control if record.eager_control.level is Level.LARGE else record.replayed
    what = ", ".join(f"`{name}`" for name in names[:5])
    return TargetError(
        f"reset() is not in place: {what} is another tensor after it, while graphs keep the memory that they captured",
        seen=f"step {at.step} with {at.in_rows} then differs: {gap}",
        fix=f"write into the tensor that is there (`{names[0]}.zero_()`, `{names[0]}.copy_(start)`) instead of putting "
        "a new one in its place",
    )


def reset_finding(unrestored: Sequence[str], backend: str) -> Finding:
    """reset() leaves something behind."""
    return Finding(
        "CGD002",
        f"reset() does not bring back {_listed(unrestored)}.",
        RULES["CGD002"].severity,
        Proof.MEASURED,
        "Restore it in reset(), in place.",
        culprit=Culprit("state", unrestored[0]),
        backend=backend,
    )
