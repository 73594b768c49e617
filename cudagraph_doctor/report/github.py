"""The report as annotations of GitHub Actions: workflow commands that put each finding on the user's line.

See "Workflow commands for GitHub Actions" in GitHub's documentation. Lines beside them in the log are not disturbed.
"""

from __future__ import annotations

from cudagraph_doctor.findings import Finding, Report, Severity, Status
from cudagraph_doctor.policy import fails, gate_of
from cudagraph_doctor.report import anchors, sentences
from cudagraph_doctor.report.anchors import Anchor
from cudagraph_doctor.report.printable import all_printable
from cudagraph_doctor.report.view import View


def render(report: Report, view: View) -> str:
    """One line each, what fails the run first: GitHub shows ten errors and ten warnings of a step, not more."""
    report = all_printable(report)
    gate = gate_of(report)
    counted = [finding for finding in report.roots if not finding.accepted]
    counted.sort(key=lambda f: (not fails(f, gate.fail_on), -f.severity.rank))
    lines = [
        _command(_level(f, gate.fail_on), sentences.title(f.code), sentences.short(f), anchors.of_finding(f, report))
        for f in counted
    ]
    for outcome in report.outcomes:
        if outcome.status in (Status.INCONCLUSIVE, Status.ERRORED):
            title, at = f"{outcome.check}: {outcome.status.value}", anchors.of_outcome(outcome, report)
            lines.append(_command("error", title, sentences.summary(outcome), at))
    lines += [_command("error", "too little was checked", text, anchors.of_target(report)) for text in gate.unmet]
    lines += [_command("notice", "fixed", text, None) for text in gate.fixed]
    lines += [_command("warning", "unused", text, None) for text in gate.unused]
    if not lines:
        title = f"cudagraph-doctor {report.target.get('spec', '')}".rstrip()
        lines.append(_command("notice", title, " ".join(map(sentences.summary, report.outcomes)), None))
    return "".join(f"{line}\n" for line in lines)


def _level(finding: Finding, fail_on: str) -> str:
    """`error` is kept for what fails the run."""
    if fails(finding, fail_on):
        return "error"
    return "notice" if finding.severity is Severity.NOTE else "warning"


def _command(level: str, title: str, text: str, at: Anchor | None) -> str:
    where = {"file": at.file, "line": str(at.line)} if at else {}
    properties = ",".join(f"{name}={_in_property(value)}" for name, value in {**where, "title": title}.items())
    return f"::{level} {properties}::{_in_text(text)}"


def _in_text(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _in_property(text: str) -> str:
    return _in_text(text).replace(":", "%3A").replace(",", "%2C")
