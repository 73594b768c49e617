"""Every planted fault is one root cause, the right one, on top; every clean twin passes. All checks, one process."""

from __future__ import annotations

import pytest

from cudagraph_doctor.errors import Inconclusive
from cudagraph_doctor.findings import Finding, Outcome, Report, Status
from cudagraph_doctor.gate.judge import Demands, judge
from cudagraph_doctor.in_process import session
from cudagraph_doctor.policy import FINDINGS, INCONCLUSIVE, OK, gate_of
from cudagraph_doctor.reference_models.capture_faults import CAPTURE_FAULTS
from cudagraph_doctor.reference_models.faults import FAULTS, Fault
from cudagraph_doctor.reference_models.input_faults import INPUT_FAULTS
from cudagraph_doctor.settings import Settings

ALL: dict[str, Fault] = {**FAULTS, **CAPTURE_FAULTS, **INPUT_FAULTS}
PLANTED = [(name, form) for name, fault in ALL.items() for form in fault.forms]
VISIBLE = [(name, form) for name, form in PLANTED if ALL[name].emulated]
AT_ONCE = {"three-at-once": 3}
"""Faults that are several on purpose."""
WARNINGS = {"attribute-written"}
"""What does harm only if somebody relies on it does not fail a run."""
LONG = {"key-without-length"}
"""Faults that need all batch sizes of an engine's plan to show."""
RECAPTURED = {"captured-buffer-reused": ("CGD307", "freed memory")}
"""Rule and culprit where the engine captures anew: the table of that capture is freed, too, and nobody gets its memory.

A checkup has an engine capture anew before each check but the first."""
NO_EAGER_STEP = {"nested-capture"}
"""Twins whose step replays graphs of its own: there is no eager step to compare with, and that is said."""


def checkup(backend: str, name: str, form: str, *, twin: bool, steps: int) -> Report:
    """A checkup of one variant of the tiny reference model, held to the default gate."""
    settings = Settings(
        "checkup",
        fault=name,
        twin=twin,
        target_args={"preset": "tiny"},
        steps=steps,
        buckets=(4,) if form == "loop" else (),
        batch_sizes=(8, 7, 1, 8, 2) if form == "engine" and name not in LONG else (),
    )
    with session(backend) as opened:
        return judge(opened.examine(f"reference:{form}", settings), Demands())


def check_found(name: str, report: Report) -> Finding:
    """As many root causes as were planted, the right one on top; what was skipped is said."""
    fault, findings = ALL[name], report.findings
    told = [(findings[cause.leading].code, findings[cause.leading].message) for cause in report.causes]
    assert len(report.causes) == AT_ONCE.get(name, 1), told
    cause = report.causes[0]
    leading = findings[cause.leading]
    codes = {findings[number].code for number in (cause.leading, *cause.others)}
    rule, culprit = RECAPTURED.get(name, (fault.rule, fault.culprit))
    assert {rule, getattr(fault, "emulated_rule", "")} & codes, told
    assert leading.culprit is not None and culprit in f"{leading.culprit.name}, {leading.culprit.detail}"
    assert cause.evidence and leading.fix and all(cause.joined)
    assert gate_of(report).exit_code == (OK if name in WARNINGS else FINDINGS)
    assert all(outcome.reason and outcome.fix for outcome in report.outcomes if outcome.status is Status.SKIPPED)
    return leading


def check_clean(name: str, report: Report) -> None:
    """No cause, and exit code 0."""
    assert [report.findings[cause.leading].message for cause in report.causes] == []
    if name in NO_EAGER_STEP:
        assert gate_of(report).exit_code == INCONCLUSIVE
        assert [_why(outcome) for outcome in report.outcomes[1:]] == ["the target's forward() replays CUDA graphs"] * 2
    else:
        assert gate_of(report).exit_code == OK, [(o.check, o.status, o.reason) for o in report.outcomes]


def _why(outcome: Outcome) -> str:
    return outcome.reason.partition(" of its own")[0]


@pytest.mark.parametrize(("name", "form"), VISIBLE)
def test_emulated_fault_is_one_root_cause(name: str, form: str) -> None:
    check_found(name, checkup("emulated", name, form, twin=False, steps=4))


@pytest.mark.parametrize(("name", "form"), VISIBLE)
def test_emulated_twin_passes(name: str, form: str) -> None:
    check_clean(name, checkup("emulated", name, form, twin=True, steps=1))


@pytest.fixture
def cuda() -> None:
    """Skips, with the reason, where there is no usable GPU."""
    try:
        with session("cuda"):
            pass
    except Inconclusive as obstacle:
        pytest.skip(obstacle.seen)


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "form"), PLANTED)
def test_fault_is_one_root_cause_on_a_gpu(name: str, form: str, cuda: None) -> None:
    check_found(name, checkup("cuda", name, form, twin=False, steps=4))


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "form"), PLANTED)
def test_twin_passes_on_a_gpu(name: str, form: str, cuda: None) -> None:
    check_clean(name, checkup("cuda", name, form, twin=True, steps=4))
