"""Report -> exit code, each combination."""

from __future__ import annotations

import pytest

from cudagraph_doctor.findings import Finding, Outcome, Proof, Report, Severity, Status
from cudagraph_doctor.policy import FAIL_ON, exit_code


def outcome(status: Status, *severities: Severity, proof: Proof = Proof.MEASURED) -> Outcome:
    return Outcome("diff", status, findings=tuple(Finding("CGD101", "m", s, proof, "f") for s in severities))


def code(*outcomes: Outcome, fail_on: str = "error") -> int:
    return exit_code(Report({}, {}, {}, outcomes), fail_on)


PASSED = outcome(Status.PASSED)
FOUND = outcome(Status.FOUND, Severity.NOTE, Severity.ERROR)
SUSPECTED = outcome(Status.FOUND, Severity.ERROR, proof=Proof.SUSPECTED)
INCONCLUSIVE = outcome(Status.INCONCLUSIVE)
ERRORED = outcome(Status.ERRORED)
SKIPPED = outcome(Status.SKIPPED)


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ([PASSED], 0),
        ([PASSED, SKIPPED], 0),
        ([SUSPECTED], 0),
        ([FOUND], 1),
        ([FOUND, INCONCLUSIVE], 1),
        ([ERRORED, FOUND], 1),
        ([outcome(Status.INCONCLUSIVE, Severity.ERROR)], 1),
        ([INCONCLUSIVE], 3),
        ([PASSED, INCONCLUSIVE], 3),
        ([SUSPECTED, INCONCLUSIVE], 3),
        ([SKIPPED], 3),
        ([], 3),
        ([ERRORED], 4),
        ([INCONCLUSIVE, ERRORED], 4),
    ],
)
def test_the_worst_decides(outcomes: list[Outcome], expected: int) -> None:
    assert code(*outcomes) == expected


@pytest.mark.parametrize("severity", Severity)
@pytest.mark.parametrize("fail_on", FAIL_ON)
def test_fail_on_is_a_threshold(severity: Severity, fail_on: str) -> None:
    order = ["note", "warning", "error", "never"]
    expected = int(order.index(severity) >= order.index(fail_on))
    assert code(outcome(Status.FOUND, severity), fail_on=fail_on) == expected


def test_never_hides_findings_only() -> None:
    assert code(FOUND, INCONCLUSIVE, fail_on="never") == 3
    assert code(FOUND, ERRORED, fail_on="never") == 4


@pytest.mark.parametrize("fail_on", FAIL_ON)
def test_a_suspicion_never_fails(fail_on: str) -> None:
    assert code(SUSPECTED, fail_on=fail_on) == 0
