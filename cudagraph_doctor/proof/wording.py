"""From a diagnosed step to a finding: rule, culprit, both values, proof, fix. Plain data in, plain data out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from cudagraph_doctor.findings import Culprit, Finding, Location, Proof, how_shown
from cudagraph_doctor.graph.model import Origin
from cudagraph_doctor.graph.names import readable
from cudagraph_doctor.graph.values import shown
from cudagraph_doctor.path_names import own_name
from cudagraph_doctor.proof import repaired
from cudagraph_doctor.proof.cases import NOBODY, Case, Fault, one_fault_each
from cudagraph_doctor.proof.compare import Level
from cudagraph_doctor.proof.diagnose import Diagnosis
from cudagraph_doctor.proof.places import Places
from cudagraph_doctor.proof.ranges import graphs_too
from cudagraph_doctor.proof.repair import Cause, Remedy, in_staging
from cudagraph_doctor.proof.replaced import By, Replaced
from cudagraph_doctor.proof.subject import Planned
from cudagraph_doctor.proof.verdict import Gap, Kind
from cudagraph_doctor.rules import RULES

_FIXES = {
    Cause.NOT_REFRESHED: "Copy this step's `{last}` into the captured buffer before each replay, in place "
    "(`buffer[:n].copy_({last})`).",
    Cause.PARTLY_REFRESHED: "Copy all of `{last}` before each replay, not just the part that was refreshed.",
    Cause.STALE_TAIL: "Reset the rows of `{last}` beyond the live batch before each replay: the graph runs over the "
    "whole bucket.",
    Cause.PADDING: "Fill the padding rows of `{last}` with a value that no live row owns: -1 where the kernel skips "
    "it, or a row reserved for padding.",
    Cause.REBOUND: "Write into the captured tensor in place (`{last}.copy_(new)`) instead of putting another one in "
    "its place, or capture again after the change.",
    Cause.REUSED: "Keep what a graph reads alive as long as the graph is: hold a reference to the tensor.",
    Cause.BAKED: "Pass it in a device tensor of fixed address that is refreshed before each replay, or make it part "
    "of the key that graphs are looked up by.",
    Cause.LEFT_OUT: "A replay runs no Python and reads no number of the host: hold `{last}` in a device tensor of "
    "fixed address that is filled before each replay (`buffer.fill_({last})`), or make it part of the key that graphs "
    "are looked up by.",
    Cause.OTHER_NODES: "A branch taken on the CPU was frozen at capture: decide on the device (torch.where), or make "
    "what it depends on part of the key.",
}
_CHOSEN = (
    "The graph keeps the tensor that was chosen on the CPU when it was captured: copy `{name}` into `{was}`, or "
    "capture again after the change."
)
_UNNAMED_FROZEN = (
    "No culprit could be named: nothing that was tried heals it. Likely causes: a Python number that sets a shape or a "
    "slice (a longest length, a number of blocks); a tensor that the step itself puts in another's place; a branch "
    "taken on the CPU; memory freed since the capture."
)
_UNNAMED_WRONG = (
    "No culprit could be named: nothing that was tried heals it. Likely causes: an input that staging leaves out or "
    "derives wrongly; padding rows that address what live rows own; work on a stream that the capture did not see; a "
    "branch that asks whether a capture is running."
)
_UNNAMED_UNTOLD = (
    "{do}, and run this again: a graph captured now tells what is frozen in the old one from what staging does wrong, "
    "and more can be tried with it. So far no culprit could be named: nothing that was tried heals it."
)
_EITHER = "either staging is wrong, or a value that the step sets on the host before it replays is baked in."


def explain(case: Case, backend: str) -> list[Finding]:
    """One finding a culprit; one without a culprit if nothing heals."""
    record, diagnosis = case.record, case.diagnosis
    finding = _Draft(case, backend, _evidence(case))
    graph = f"graph {case.at.key}"
    if case.kind is Kind.UNSTABLE:
        counted = record.counted
        times = f", in {counted.differs} of {counted.of} pairs" if counted else ""
        return [
            finding.about(
                "CGD106",
                Proof.MEASURED,
                None,
                f"Replays of {graph} on the same inputs differ from each other: {record.replay_control}{times}. "
                "Eager repeats bit for bit.",
                "Look for a race inside the graph, or for memory that it reads before writing.",
            )
        ]
    if diagnosis.culprits:
        return [_of_remedies(case, fault, some, finding) for fault, some in one_fault_each(diagnosis.culprits).items()]
    if case.kind is Kind.FROZEN and diagnosis.unlike is not None:
        message = f"A capture of step {case.at.step} launches other work than {graph} does: {diagnosis.unlike}"
        return [
            finding.about(
                "CGD101",
                Proof.MEASURED,
                _node_culprit(diagnosis, case.places.launched),
                f"{message}. {_effect(case)}.{graphs_too(case.also_in())}",
                _FIXES[Cause.OTHER_NODES],
                {**_also_in(case, NOBODY), **repaired.of_node(case.at.key, diagnosis.unlike.index)},
            )
        ]
    if case.kind is Kind.FROZEN:
        message = f"Something in {graph} is frozen since its capture: {_effect(case)}. A graph captured now is right."
        return [finding.about("CGD101", Proof.MEASURED, None, message, _UNNAMED_FROZEN)]
    message = f"Replaying {graph} differs from eager: {_effect(case)}."
    if case.kind is Kind.DIFFERS:
        as_wrong = record.fresh_replayed is not None and record.fresh_replayed.level is Level.EQUAL
        if case.own_captures:  # before a step, not in its midst, where the step's own host values are set
            message += f" A graph that the target captures now differs as well: {_EITHER}"
        else:
            message += f" A graph captured now differs as well, {'so nothing is frozen' if as_wrong else 'otherwise'}."
    do = case.to_recapture
    fix = _UNNAMED_UNTOLD.format(do=do[:1].upper() + do[1:]) if do else _UNNAMED_WRONG
    return [finding.about("CGD102", Proof.MEASURED, _state_culprit(record.replayed), message, fix)]


@dataclass(frozen=True, slots=True)
class _Draft:
    """What all findings of one case share."""

    case: Case
    backend: str
    evidence: dict[str, Any]

    def about(
        self,
        code: str,
        proof: Proof,
        culprit: Culprit | None,
        message: str,
        fix: str,
        evidence: dict[str, Any] | None = None,
    ) -> Finding:
        places = self.case.places
        launched = (
            places.launched.location if places.launched and culprit and culprit.kind in ("parameter", "node") else None
        )
        # staging is shown where something accuses it, not because nothing else is known
        culprits = self.case.diagnosis.culprits
        bound = next((line for one in culprits if isinstance(line := one.notes.get("line"), Location)), None)
        location, related = places.told(launched or bound, bound is None and any(in_staging(one) for one in culprits))
        if culprit is None and location is places.step:
            location = None  # nobody is accused: a baseline knows it by its message
        return Finding(
            code=code,
            message=message,
            severity=RULES[code].severity,
            proof=proof,
            fix=fix,
            culprit=culprit,
            location=location,
            related=related,
            step=self.case.at.step,
            key=str(self.case.at.key),
            backend=self.backend,
            evidence={**self.evidence, **(evidence or {})},
        )


_CODES = {
    Cause.STALE_TAIL: "CGD103",
    Cause.PADDING: "CGD103",
    Cause.REBOUND: "CGD101",
    Cause.REUSED: "CGD101",
    Cause.BAKED: "CGD101",
}


def _of_remedies(case: Case, fault: Fault, remedies: list[Remedy], draft: _Draft) -> Finding:
    first = remedies[0]
    code = _CODES.get(first.cause) or ("CGD101" if case.kind is Kind.FROZEN else "CGD102")
    together = len(remedies) > 1 and first.cause is Cause.REBOUND
    name = first.name.rpartition(".")[0] if together else first.name
    names = ", ".join(f"`{r.name}`" for r in remedies)
    where = f" ({first.where})" if first.where and len(remedies) == 1 else ""
    size = sum(r.bytes for r in remedies)
    healed = f"healed by {'setting' if first.edits else 'writing'} {size} bytes of {names}{where}"
    if not case.diagnosis.confirmed:
        healed = f"the graph's launches have another address where one captured now has that of {names}"
    elif first.edits and first.cause is Cause.REBOUND:
        healed = f"healed by putting the address of {names} into the graph"
    if case.diagnosis.forced:
        healed = f"its {size} bytes, put into a graph captured now, make that one as wrong, bit for bit"
    if first.cause is Cause.LEFT_OUT:
        healed = f"healed by capturing the graph with {names} as this step has it"
    if first.cause is Cause.PADDING:
        healed = f"healed by giving {names}{where} a live row's value: that state is left alone then"
    both = f" ({first.was} in the graph, {first.expected} in one captured now)" if case.values else ""
    then_and_now = f" ({first.was}; {first.expected} at this step)" if case.values else ""
    what = {
        Cause.NOT_REFRESHED: f"`{name}` is not refreshed before the replay",
        Cause.PARTLY_REFRESHED: f"`{name}` is refreshed only in part (not {first.where})",
        Cause.STALE_TAIL: f"`{name}` keeps the values of an earlier step in its {first.where}",
        Cause.PADDING: f"`{name}` addresses live state from its {first.where}",
        Cause.REBOUND: f"graph {case.at.key} has `{first.was}` where one captured now has `{first.expected}`"
        if first.was
        else f"`{name}` is another {'object' if together else 'tensor'} by now than the one that graph {case.at.key} "
        "captured",
        Cause.REUSED: f"graph {case.at.key} reads memory that was somebody else's when it was captured, and is "
        f"`{name}`'s by now",
        Cause.BAKED: f"{names} was baked into graph {case.at.key} by value{both}",
        Cause.LEFT_OUT: f"{names} of next_inputs never reaches graph {case.at.key}, which goes on with its value at "
        f"the capture{then_and_now}",
    }[first.cause]
    captured, expected = _both(first, case.values)
    if first.cause is Cause.PADDING:
        expected = None  # what was written in the experiment is not what belongs there
    if together and case.values:
        captured, expected = ({r.name: _both(r, True)[side] for r in remedies} for side in (0, 1))
    fix = _FIXES[first.cause] if not (first.cause is Cause.REBOUND and first.was) else _CHOSEN
    return draft.about(
        code,
        Proof.CONFIRMED if case.diagnosis.confirmed else Proof.MEASURED,
        Culprit(first.accused, name, _detail(case, remedies), captured, expected),
        f"{what}: {_effect(case)}. Step {case.at.step}, {case.at.in_rows}: {healed}.{graphs_too(case.also_in(fault))}",
        fix.format(name=first.name, last=own_name(first.name), was=first.was),
        {
            "cause": first.cause.value,
            **how_shown(healed),
            "remedies_tried": case.diagnosis.tried,
            **_also_in(case, fault),
            **repaired.of_group(remedies),
        },
    )


def _also_in(case: Case, fault: Fault) -> dict[str, Any]:
    told = case.also_in(fault)
    return {"also_in": told} if told else {}


def _detail(case: Case, remedies: list[Remedy]) -> str:
    launched = case.places.launched
    if remedies[0].edits and launched is not None:
        where = f" in {launched.module}" if launched.module else ""
        return f"launched by {launched.operator or 'no operator'}{where}"
    return remedies[0].where or (", ".join(f"`{r.name}`" for r in remedies) if len(remedies) > 1 else "")


def _node_culprit(diagnosis: Diagnosis, launched: Origin | None) -> Culprit:
    unlike = diagnosis.unlike
    assert unlike is not None
    old, new = (readable(n.name) if n else None for n in (unlike.old, unlike.new))
    return Culprit("node", f"node {unlike.index}", launched.module if launched else "", old, new)


def _state_culprit(gap: Gap) -> Culprit | None:
    if not gap.state.places:
        return None
    place = gap.state.places[0]
    index = ", ".join(map(str, place.index))
    return Culprit("state", place.name, f"{place.name}[{index}] (slot {place.linear}): {place.kind}")


def _effect(case: Case) -> str:
    gap = case.record.replayed
    parts = [str(d) for d in gap.outputs[:3]]
    if gap.state.places:
        first = gap.state.places[0]
        parts.append(f"{gap.state}, first at {first.name}[{', '.join(map(str, first.index))}]")
    if case.record.harm_step is not None:
        parts.append(f"later steps' output changes by it (seen at position {case.record.harm_step} of the plan)")
    counted = f", {case.record.counted}" if case.record.counted else ""
    return ("; ".join(parts) or str(gap)) + counted


def _evidence(case: Case) -> dict[str, Any]:
    record = case.record
    evidence: dict[str, Any] = {
        "kind": case.kind.value,
        "replayed_against_eager": str(record.replayed),
        "eager_against_eager": str(record.eager_control),
        "replayed_against_replayed": str(record.replay_control),
        "seen_at_steps": list(case.steps),
        "first_bad_step_hint": first_step_hint(case.steps),
    }
    if record.counted is not None:
        evidence["counted"] = str(record.counted)
    if record.fresh is not None:
        evidence["fresh_against_eager"] = str(record.fresh)
        evidence["replayed_against_fresh"] = str(record.fresh_replayed)
    if record.padding is not None:
        evidence["eager_has"] = "the same padding rows as the graph: the target has no update() that says what is there"
    if record.padded is not None:
        evidence["fresh_against_eager_on_static_inputs"] = str(record.padded)
    if case.module:
        evidence["first_diverging_module"] = case.module
    if record.replayed.state.places:
        evidence["state"] = [
            f"{p.name}[{', '.join(map(str, p.index))}] slot {p.linear}: {p.kind}"
            for p in record.replayed.state.places[:16]
        ]
    if case.owners:
        evidence["owners"] = list(dict.fromkeys(case.owners))[:16]
    if case.diagnosis.not_read:
        evidence["nodes_not_read"] = case.diagnosis.not_read
    return evidence


def first_step_hint(steps: Sequence[int]) -> str:
    """What the first bad step hints at."""
    if steps[0] == 0:
        return "bad from the first step: what is wrong was wrong right after the capture"
    return (
        f"right until step {steps[0]}: something that changes then (a block boundary, a threshold, a smaller batch, "
        "a new weight)"
    )


def _both(remedy: Remedy, values: bool) -> tuple[Any, Any]:
    if not values:
        return None, None
    if remedy.buffer is None:
        return remedy.was, remedy.expected
    held, right = remedy.held, remedy.right
    if short(held) == short(right) and held is not None and right is not None and held.shape == right.shape:
        apart = held != right  # alike in front: then it is what differs
        held, right = held[apart], right[apart]
    return short(held), short(right)


def short(tensor: torch.Tensor | None, limit: int = 24) -> Any:
    """A tensor's values as plain JSON: the first `limit`, then "..."."""
    if tensor is None:
        return None
    if tensor.dim() == 2 and tensor.numel() <= 4 * limit:
        return [short(row, limit) for row in tensor]
    dtype = str(tensor.dtype).removeprefix("torch.")
    flat = [shown(value, dtype) for value in tensor.detach().flatten()[: limit + 1].cpu().tolist()]
    return flat if len(flat) <= limit else [*flat[:limit], "..."]


def failing_replay(at: Planned, moved: Sequence[str], places: Places, backend: str) -> Finding:
    """Should this replay fail or take the process along: the same step has run eagerly."""
    message = f"Replaying graph {at.key} fails: step {at.step} ({at.in_rows}) runs eagerly, and not by its graph."
    culprit = None
    if moved:
        names = ", ".join(f"`{name}`" for name in moved[:5])
        message += f" By then {names} belonged to other memory than the graph captured: it reads what was left behind."
        culprit = Culprit("input", moved[0], "rebound since the capture")
    return Finding(
        "CGD003",
        message,
        RULES["CGD003"].severity,
        Proof.MEASURED,
        _FIXES[Cause.REBOUND].format(last=own_name(moved[0]))
        if moved
        else "Look at what the graph reads that eager does not: stale indices, freed memory, baked sizes.",
        culprit=culprit,
        location=places.staging,
        related=(places.captured,) if places.captured else (),
        step=at.step,
        key=str(at.key),
        backend=backend,
        evidence={"moved": list(moved[:16])},
    )


def replaced_finding(found: Replaced, staging: Location | None, backend: str) -> Finding:
    """A graph step puts another tensor in the place of state."""
    names = ", ".join(f"`{name}`" for name in found.names[:5])
    effect = "; ".join(map(str, found.differences[:3]))
    later = f"step {found.later.step}, run eagerly"
    moved = f"{names} is another tensor by now than the one that graph {found.at.key} captured: staging step "
    what = {
        By.STAGING_OF_STATE: f"{moved}{found.at.step} put it there, so the graph's writes do not reach {later} "
        f"({effect}).",
        By.STAGING: f"{moved}{found.at.step} put it there, and {later}, reads it, while the graph reads the old one "
        f"({effect}).",
        By.STEP: f"{names} is another tensor after each eager step, and no replay of graph {found.at.key} puts one "
        f"there: what it writes at step {found.at.step} does not reach {later} ({effect}).",
    }[found.by]
    location = found.line or staging
    has = "reads" if found.by is By.STAGING else "wrote"
    return Finding(
        "CGD101",
        what,
        RULES["CGD101"].severity,
        Proof.CONFIRMED if found.healed else Proof.MEASURED,
        _FIXES[Cause.REBOUND].format(last=own_name(found.names[0])),
        culprit=Culprit("buffer" if found.by is By.STAGING else "state", found.names[0]),
        location=location,
        related=(staging,) if found.by is not By.STEP and staging and staging is not location else (),
        step=found.at.step,
        key=str(found.at.key),
        backend=backend,
        evidence={
            "cause": Cause.REBOUND.value,
            "control": "the same steps in a row, all of them eagerly, twice: equal",
            "names": list(found.names[:16]),
            **({"healed_by": f"copying what the graph {has} to where {names} is now"} if found.healed else {}),
        },
    )
