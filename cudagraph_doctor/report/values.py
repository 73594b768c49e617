"""`--no-values`: a report that names the culprit and the places, and keeps what was computed with to itself."""

from __future__ import annotations

import dataclasses

from cudagraph_doctor.findings import Finding, Report


def without_values(report: Report) -> Report:
    """The report without captured and expected values, in culprits and in evidence."""
    return dataclasses.replace(
        report,
        outcomes=tuple(
            dataclasses.replace(outcome, findings=tuple(_hidden(finding) for finding in outcome.findings))
            for outcome in report.outcomes
        ),
    )


def _hidden(finding: Finding) -> Finding:
    culprit = finding.culprit
    if culprit is not None:
        culprit = dataclasses.replace(culprit, captured=None, expected=None)
    evidence = {key: value for key, value in finding.evidence.items() if not key.endswith("values")}
    return dataclasses.replace(finding, culprit=culprit, evidence=evidence)
