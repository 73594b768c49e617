"""JUnit XML: valid under both published schemas, a test for each check and each rule."""

from __future__ import annotations

import dataclasses
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import xmlschema

from cudagraph_doctor.findings import Outcome, Report, Status
from cudagraph_doctor.report.junit import render
from cudagraph_doctor.report.view import View

SCHEMAS = Path(__file__).resolve().parents[1] / "data" / "schemas"
JENKINS, ANT = (xmlschema.XMLSchema(SCHEMAS / name) for name in ("junit-10.xsd", "JUnit.xsd"))


def cases(report: Report) -> dict[str, ET.Element]:
    """The tests by name; what is rendered is valid."""
    text = render(report, View(debug=True))
    JENKINS.validate(text)
    ANT.validate(text)
    root = ET.fromstring(text)
    for suite in root:
        listed = suite.findall("testcase")
        assert suite.get("tests") == str(len(listed))
        for kind, attribute in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
            assert suite.get(attribute) == str(sum(case.find(kind) is not None for case in listed))
    return {f"{case.get('classname')} {case.get('name')}": case for case in root.iter("testcase")}


def child(case: ET.Element, kind: str) -> ET.Element:
    assert [element.tag for element in case] == [kind]
    return case[0]


def test_a_finding_fails_the_test_of_its_rule(found: Report) -> None:
    tests = cases(found)
    failure = child(tests["cudagraph-doctor.diff CGD101 frozen-in-graph"], "failure")
    assert failure.get("type") == "CGD101"
    assert "`slot_mapping` is not refreshed" in (failure.get("message") or "")
    assert "serving/decode.py:120 in Runner.run: graph.replay()" in (failure.text or "")
    assert "expected: [17, 33, 49]" in (failure.text or "")


def test_a_note_fails_nothing_and_is_told(found: Report) -> None:
    assert len(cases(found)["cudagraph-doctor.diff CGD107 graph-numerics"]) == 0
    out = ET.fromstring(render(found, View())).findtext("testsuite/system-out") or ""
    assert "note CGD107 graph-numerics:\nGraph 4 and eager differ by rounding only." in out
    assert "Not checked: Kernels without a CPU form." in out


def test_the_names_are_those_of_a_clean_run(found: Report) -> None:
    [outcome] = found.outcomes
    clean = dataclasses.replace(found, outcomes=(dataclasses.replace(outcome, status=Status.PASSED, findings=()),))
    assert list(cases(clean)) == list(cases(found))
    assert all(len(case) == 0 for case in cases(clean).values())


def test_several_findings_of_one_rule_are_one_failure(found: Report) -> None:
    [outcome] = found.outcomes
    twice = dataclasses.replace(outcome, findings=(*outcome.findings, outcome.findings[0]))
    tests = cases(dataclasses.replace(found, outcomes=(twice,)))
    failure = child(tests["cudagraph-doctor.diff CGD101 frozen-in-graph"], "failure")
    assert (failure.get("message") or "").endswith("(and 1 more)")
    assert (failure.text or "").count("Fix: Copy") == 2


def test_a_rule_that_was_not_evaluated_to_the_end_did_not_pass() -> None:
    lost = Outcome(
        "diff", Status.INCONCLUSIVE, "The process was lost.", "Look.", rules=("CGD101",), traceback="Fatal error"
    )
    tests = cases(Report({}, {}, {}, (lost,)))
    error = child(tests["cudagraph-doctor.diff comes to its end"], "error")
    assert error.get("type") == "inconclusive"
    assert error.text == "The process was lost.\nFix: Look.\nFatal error"
    skipped = child(tests["cudagraph-doctor.diff CGD101 frozen-in-graph"], "skipped")
    assert skipped.get("message") == "not evaluated to the end: diff inconclusive"


def test_our_bug_is_an_error_and_a_skipped_check_is_skipped(incomplete: Report) -> None:
    skipped = Outcome("inputs", Status.SKIPPED, "the capture failed", rules=("CGD101",))
    tests = cases(dataclasses.replace(incomplete, outcomes=(*incomplete.outcomes, skipped)))
    assert child(tests["cudagraph-doctor.capture comes to its end"], "error").get("type") == "errored"
    assert child(tests["cudagraph-doctor.inputs comes to its end"], "skipped").get("message") == "the capture failed"
    assert child(tests["cudagraph-doctor.inputs CGD101 frozen-in-graph"], "skipped") is not None


def test_what_the_gate_accepts_fails_nothing(gated: Report) -> None:
    tests = cases(gated)
    assert child(tests["cudagraph-doctor.diff CGD101 frozen-in-graph"], "failure") is not None
    assert len(tests["cudagraph-doctor.diff CGD102 graph-differs-from-eager"]) == 0
    assert child(tests["cudagraph-doctor.diff comes to its end"], "error").get("type") == "coverage"
    out = ET.fromstring(render(gated, View())).findtext("testsuite/system-out") or ""
    assert "(known in the baseline baseline.json)" in out
    assert "(ignored by pyproject.toml: rounding is fine)" in out
    assert "Fixed: CGD103" in out and "Unused: CGD2" in out


def test_fail_on_decides_what_a_failure_is(found: Report) -> None:
    from cudagraph_doctor.findings import Gate

    strict = cases(dataclasses.replace(found, gate=Gate(fail_on="note")))
    assert child(strict["cudagraph-doctor.diff CGD107 graph-numerics"], "failure") is not None
    never = cases(dataclasses.replace(found, gate=Gate(fail_on="never")))
    assert all(len(case) == 0 for case in never.values())


@pytest.mark.parametrize("text", ["\x1b[31m", "\x00", "\ufffe", "\udcc3", "<&>\"'", "a\r\nb", "😀", "]]>"])
def test_any_text_stays_xml(found: Report, text: str) -> None:
    [outcome] = found.outcomes
    finding = dataclasses.replace(outcome.findings[0], message=f"bad {text} text", fix=text)
    report = dataclasses.replace(
        found,
        target={"spec": text},
        outcomes=(dataclasses.replace(outcome, findings=(finding,), not_checked=(text,)),),
    )
    failure = child(cases(report)["cudagraph-doctor.diff CGD101 frozen-in-graph"], "failure")
    assert "bad " in (failure.get("message") or "")
