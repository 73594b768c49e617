"""Report -> exit code. The whole table in one place; the report's text says the same in words."""

from __future__ import annotations

from cudagraph_doctor.findings import Finding, Proof, Report, Severity, Status

OK, FINDINGS, USAGE, INCONCLUSIVE, OUR_BUG, INTERRUPTED = 0, 1, 2, 3, 4, 130

FAIL_ON = (*(severity.value for severity in Severity), "never")
"""What `--fail-on` takes."""


def fails(finding: Finding, fail_on: str) -> bool:
    """Whether a finding makes the run fail: severe enough, and more than a suspicion."""
    if fail_on == "never" or finding.proof is Proof.SUSPECTED:
        return False
    return finding.severity.rank >= Severity(fail_on).rank


def exit_code(report: Report, fail_on: str = Severity.ERROR.value) -> int:
    """1 if a finding fails the run, also when the run is incomplete; else the worst of the outcomes."""
    statuses = {outcome.status for outcome in report.outcomes}
    if any(fails(finding, fail_on) for finding in report.findings):
        return FINDINGS
    if Status.ERRORED in statuses:
        return OUR_BUG
    if Status.INCONCLUSIVE in statuses or not statuses - {Status.SKIPPED}:
        return INCONCLUSIVE
    return OK
