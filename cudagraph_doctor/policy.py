"""Report -> exit code. The whole table in one place; the report's text says the same in words."""

from __future__ import annotations

from cudagraph_doctor.findings import Finding, Gate, Proof, Report, Severity, Status

OK, FINDINGS, USAGE, INCONCLUSIVE, OUR_BUG, INTERRUPTED = 0, 1, 2, 3, 4, 130

FAIL_ON = (*(severity.value for severity in Severity), "never")
"""What `--fail-on` takes."""


def fails(finding: Finding, fail_on: str) -> bool:
    """Whether a finding makes the run fail: severe enough, more than a suspicion, and not accepted."""
    if fail_on == "never" or finding.proof is Proof.SUSPECTED or finding.accepted:
        return False
    return finding.severity.rank >= Severity(fail_on).rank


def gate_of(report: Report) -> Gate:
    """The gate that the report was held to; where it was held to none, that of the default options."""
    return report.gate or Gate(exit_code=exit_code(report))


def exit_code(report: Report, fail_on: str = Severity.ERROR.value) -> int:
    """1 if a finding fails the run, also when the run is incomplete; else the worst of the outcomes and demands."""
    statuses = {outcome.status for outcome in report.outcomes}
    if any(fails(finding, fail_on) for finding in report.findings):
        return FINDINGS
    if Status.ERRORED in statuses:
        return OUR_BUG
    if Status.INCONCLUSIVE in statuses or not statuses - {Status.SKIPPED} or (report.gate and report.gate.unmet):
        return INCONCLUSIVE
    return OK
