"""The report as JUnit XML: a suite for each check, in it a test for the check itself and one for each of its rules.

The names stay the same from run to run, so that a CI can tell since when a test fails. Valid under the schemas of
Jenkins' xUnit plugin and of Apache Ant; what a test may not hold there (notes, accepted findings, what was not checked)
is in the suite's `system-out`.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from cudagraph_doctor.findings import Finding, Outcome, Report, Status
from cudagraph_doctor.policy import fails, gate_of
from cudagraph_doctor.report import sentences
from cudagraph_doctor.report.printable import all_printable
from cudagraph_doctor.report.view import View

_NOT_XML = re.compile("[\ud800-\udfff\ufffe\uffff]")
"""What `printable` lets pass and XML 1.0 does not."""


def render(report: Report, view: View) -> str:
    """The XML, indented, in UTF-8."""
    report = all_printable(report)
    root = ET.Element("testsuites")
    for number, outcome in enumerate(report.outcomes):
        root.append(_suite(number, outcome, report, view))
    ET.indent(root)
    text = ET.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{_NOT_XML.sub(_escaped, text)}\n'


def _suite(number: int, outcome: Outcome, report: Report, view: View) -> ET.Element:
    cases = [_check_case(outcome, report, view), *_rule_cases(outcome, report)]
    counted = {kind: sum(case.find(kind) is not None for case in cases) for kind in ("failure", "error", "skipped")}
    suite = ET.Element(
        "testsuite",
        name=outcome.check,
        package="cudagraph-doctor",
        id=str(number),
        timestamp=str(report.tool.get("started") or "1970-01-01T00:00:00").rstrip("Z"),
        hostname="localhost",  # the schema demands one; whose machine it was is nobody's business
        tests=str(len(cases)),
        failures=str(counted["failure"]),
        errors=str(counted["error"]),
        skipped=str(counted["skipped"]),
        time=f"{outcome.seconds:.3f}",
    )
    properties = ET.SubElement(suite, "properties")
    for name, value in {**sentences.about(report), "checked": sentences.summary(outcome)}.items():
        ET.SubElement(properties, "property", name=name, value=value)
    suite.extend(cases)
    ET.SubElement(suite, "system-out").text = _beside(outcome, report)
    ET.SubElement(suite, "system-err").text = outcome.traceback if view.debug else ""
    return suite


def _check_case(outcome: Outcome, report: Report, view: View) -> ET.Element:
    """The test that the check comes to its end, and has looked at as much as was demanded."""
    case = _case(outcome, "comes to its end", outcome.seconds)
    unmet = [text for text in gate_of(report).unmet if text.startswith(f"{outcome.check}: ")]
    if outcome.status is Status.SKIPPED:
        ET.SubElement(case, "skipped", message=outcome.reason)
    elif sentences.is_incomplete(outcome):
        error = ET.SubElement(case, "error", type=outcome.status.value, message=outcome.reason)
        error.text = "\n".join([outcome.reason, f"Fix: {outcome.fix}", outcome.traceback if view.debug else ""])
    elif unmet:
        ET.SubElement(case, "error", type="coverage", message=unmet[0]).text = "\n".join(unmet)
    return case


def _rule_cases(outcome: Outcome, report: Report) -> list[ET.Element]:
    """A test for each rule that was evaluated, and for each that has a finding."""
    by_code: dict[str, list[Finding]] = {code: [] for code in outcome.rules}
    for finding in outcome.findings:
        by_code.setdefault(finding.code, []).append(finding)
    cases = []
    for code, findings in by_code.items():
        case = _case(outcome, sentences.title(code), 0.0)
        roots = {id(finding) for finding in report.roots}
        failing = [f for f in findings if id(f) in roots and fails(f, gate_of(report).fail_on)]
        if failing:
            more = f" (and {len(failing) - 1} more)" if len(failing) > 1 else ""
            failure = ET.SubElement(case, "failure", type=code, message=failing[0].message + more)
            failure.text = "\n\n".join(map(sentences.long, failing))
        elif sentences.is_incomplete(outcome):
            ET.SubElement(case, "skipped", message=f"not evaluated to the end: {outcome.check} {outcome.status.value}")
        cases.append(case)
    return cases


def _case(outcome: Outcome, name: str, seconds: float) -> ET.Element:
    return ET.Element("testcase", classname=f"cudagraph-doctor.{outcome.check}", name=name, time=f"{seconds:.3f}")


def _beside(outcome: Outcome, report: Report) -> str:
    """What fails no test and is worth reading."""
    gate = gate_of(report)
    lines = []
    leads = {id(other): root for root in report.roots for other in report.followers(root)}
    for finding in outcome.findings:
        if id(finding) in leads:
            lines.append(f"{sentences.title(finding.code)}: of the same fault as {leads[id(finding)].code}.\n")
        elif not fails(finding, gate.fail_on):
            why = f" ({sentences.acceptance(finding.accepted)})" if finding.accepted else ""
            lines.append(f"{finding.severity.value} {sentences.title(finding.code)}{why}:\n{sentences.long(finding)}\n")
    lines += [f"Fixed: {text}" for text in gate.fixed]
    lines += [f"Unused: {text}" for text in gate.unused]
    lines += [f"Not checked: {text}" for text in outcome.not_checked]
    return "\n".join(lines)


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"
