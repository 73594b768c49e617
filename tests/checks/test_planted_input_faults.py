"""Every planted fault of what replays read is found by `inputs`, with its rule and culprit; every twin stays silent."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudagraph_doctor import reference_models
from cudagraph_doctor.checks import replay_inputs
from cudagraph_doctor.findings import Finding, Outcome, Proof, Severity, Status
from cudagraph_doctor.graph.backend import Backend
from cudagraph_doctor.progress import Silent
from cudagraph_doctor.reference_models.faults import FAULTS, Fault
from cudagraph_doctor.reference_models.input_faults import INPUT_FAULTS, SEEN_BY_INPUTS
from cudagraph_doctor.rules import RULES
from cudagraph_doctor.settings import Settings

ALL: dict[str, Fault] = {name: {**FAULTS, **INPUT_FAULTS}[name] for name in SEEN_BY_INPUTS}
PLANTED = [(name, form) for name, fault in ALL.items() for form in fault.forms if SEEN_BY_INPUTS[name][0] in RULES]
VISIBLE = [(name, form) for name, form in PLANTED if ALL[name].emulated]
MEASURED = {"branch-on-length", "too-few-splits"}
"""Nodes and grids of a captured graph cannot be exchanged: all others are confirmed."""
RECAPTURES = 20
"""Captures of a twin's steps that are compared on a GPU: what differs between them by chance must not be heard."""


def inputs(backend: Backend, name: str, form: str, *, twin: bool, recaptures: int = 0) -> Outcome:
    """`inputs` of one variant of the tiny reference model; two buckets are enough, an engine chooses by batch size."""
    buckets = (4, 16) if form == "loop" else ()
    with backend.installed():
        target = reference_models.load(form, device=backend.device, fault=name, twin=twin, preset="tiny", seed=0)
        settings = Settings(check="inputs", steps=4, buckets=buckets, recaptures=recaptures)
        return replay_inputs.run(target, backend, settings, Silent())


def check_found(name: str, outcome: Outcome, emulated: bool) -> Finding:
    """One root cause, and the right one."""
    code, culprit = SEEN_BY_INPUTS[name]
    fault = INPUT_FAULTS.get(name)
    if emulated and fault is not None and fault.emulated_rule:
        code = fault.emulated_rule
    spoken = [finding for finding in outcome.findings if finding.severity is not Severity.NOTE]
    assert [finding.code for finding in spoken] == [code], told(outcome)
    (found,) = spoken
    assert outcome.status is Status.FOUND and found.fix, told(outcome)
    assert found.culprit is not None and culprit in f"{found.culprit.name}, {found.culprit.detail}", told(outcome)
    confirmed = name not in MEASURED or code == "CGD320"
    assert emulated is False or (found.proof is Proof.CONFIRMED) is confirmed, told(outcome)
    return found


def told(outcome: Outcome) -> str:
    """All that the check said, shortly: for whoever reads why a test failed, perhaps without a GPU of his own."""
    lines = [f"{outcome.status} {outcome.reason}"]
    for one in outcome.findings:
        who = f"{one.culprit.kind} {one.culprit.name!r}, {one.culprit.detail!r}" if one.culprit else "nobody"
        where = f"{Path(one.location.file).name}:{one.location.line}" if one.location else "no line"
        lines.append(f"{one.code} {one.severity} {one.proof} {who}, {where}: {one.message[:300]}")
        lines.append(f"  {str(one.evidence)[:600]}")
    verdicts = [f"{step.index} {step.verdict}" for step in outcome.steps]
    return "\n".join(
        [*lines, f"steps: {verdicts}", f"checked: {outcome.checked}", f"not checked: {outcome.not_checked}"]
    )


def check_silent(name: str, outcome: Outcome, emulated: bool) -> None:
    """Nothing above a note, no note but the twin's, and something was judged."""
    fault = INPUT_FAULTS.get(name)
    allowed = {fault.twin_note} if fault is not None and not emulated else set()
    assert [f.message for f in outcome.findings if f.severity is not Severity.NOTE] == [], told(outcome)
    assert {finding.code for finding in outcome.findings} <= allowed, told(outcome)
    assert outcome.status is Status.PASSED, told(outcome)


@pytest.mark.parametrize(("name", "form"), VISIBLE)
def test_emulated_fault_is_found(name: str, form: str, emulated: Backend) -> None:
    check_found(name, inputs(emulated, name, form, twin=False), emulated=True)


@pytest.mark.parametrize(("name", "form"), PLANTED)
def test_emulated_twin_is_silent(name: str, form: str, emulated: Backend) -> None:
    check_silent(name, inputs(emulated, name, form, twin=True), emulated=True)


@pytest.mark.parametrize("name", ["slot-mapping-not-copied", "max-seqlen-by-value"])
def test_both_values_and_what_heals_are_told(name: str, emulated: Backend) -> None:
    found = check_found(name, inputs(emulated, name, "loop", twin=False), emulated=True)
    assert found.culprit is not None and found.culprit.captured != found.culprit.expected
    assert "in 5 of 5 replays, eager from itself in 0 of 5" in found.message and "Healed by" in found.message


@pytest.mark.parametrize("name", ["temperature-by-value", "descriptor-by-value", "too-few-splits", "round-counter"])
def test_the_line_that_launches_is_told(name: str, emulated: Backend) -> None:
    found = check_found(name, inputs(emulated, name, "loop", twin=False), emulated=True)
    assert found.location is not None
    source = Path(found.location.file).read_text().splitlines()
    assert f"# planted: {name} " in source[found.location.line - 1]


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "form"), PLANTED)
def test_fault_is_found_on_a_gpu(name: str, form: str, cuda: Backend) -> None:
    check_found(name, inputs(cuda, name, form, twin=False), emulated=False)


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "form"), PLANTED)
def test_twin_is_silent_on_a_gpu(name: str, form: str, cuda: Backend) -> None:
    outcome = inputs(cuda, name, form, twin=True, recaptures=RECAPTURES)
    check_silent(name, outcome, emulated=False)
    assert outcome.checked["captures compared"] >= RECAPTURES, told(outcome)
