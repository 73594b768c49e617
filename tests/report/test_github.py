"""Annotations: on the user's line, escaped as GitHub's runner unescapes, the failing ones first."""

from __future__ import annotations

import dataclasses
import re

import pytest

from cudagraph_doctor.findings import Proof, Report
from cudagraph_doctor.report.github import render
from cudagraph_doctor.report.view import View

COMMAND = re.compile(r"^::(error|warning|notice) ([^:]*)::(.*)$")


def commands(report: Report) -> list[tuple[str, dict[str, str], str]]:
    """Level, properties and text of each line, read as the runner reads them."""
    found = []
    for line in render(report, View()).splitlines():
        match = COMMAND.match(line)
        assert match, line
        properties = dict(pair.split("=", 1) for pair in match[2].split(","))
        found.append(
            (
                match[1],
                {name: unescaped(value.replace("%3A", ":").replace("%2C", ",")) for name, value in properties.items()},
                unescaped(match[3]),
            )
        )
    return found


def unescaped(text: str) -> str:
    return text.replace("%0D", "\r").replace("%0A", "\n").replace("%25", "%")


def test_a_finding_is_on_its_line(found: Report) -> None:
    [error, note] = commands(found)
    assert error[0] == "error"
    assert error[1] == {"file": "serving/decode.py", "line": "120", "title": "CGD101 frozen-in-graph"}
    assert error[2].startswith("`slot_mapping` is not refreshed")
    assert "\n\nFix: Copy this step's" in error[2]
    assert (note[0], note[1]) == ("notice", {"title": "CGD107 graph-numerics"})


@pytest.mark.parametrize("text", ["100% of 3,4: x::y", "two\nlines\r\n", "%0A is literal", "::error file=x::"])
def test_any_text_comes_through(found: Report, text: str) -> None:
    [outcome] = found.outcomes
    finding = dataclasses.replace(outcome.findings[0], message=text, location=None, related=())
    report = dataclasses.replace(found, outcomes=(dataclasses.replace(outcome, findings=(finding,)),))
    printed = text.replace("\r", "\\x0d")  # control characters are shown as such, as in every format
    [(_, _, message)] = commands(report)
    assert message == f"{printed}\n\nFix: {finding.fix}"


def test_a_title_is_escaped(incomplete: Report) -> None:
    level, properties, text = commands(incomplete)[-1]
    assert (level, properties) == (
        "error",
        {"file": "serving/decode.py", "line": "42", "title": "capture: errored"},
    )
    assert "A bug in cudagraph-doctor: KeyError" in text


def test_what_does_not_fail_the_run_is_no_error(found: Report) -> None:
    [outcome] = found.outcomes
    suspected = dataclasses.replace(outcome.findings[0], proof=Proof.SUSPECTED)
    report = dataclasses.replace(found, outcomes=(dataclasses.replace(outcome, findings=(suspected,)),))
    assert [level for level, _, _ in commands(report)] == ["warning"]


def test_the_failing_ones_come_first(found: Report) -> None:
    [outcome] = found.outcomes
    backwards = dataclasses.replace(outcome, findings=outcome.findings[::-1])
    assert [level for level, _, _ in commands(dataclasses.replace(found, outcomes=(backwards,)))] == [
        "error",
        "notice",
    ]


def test_accepted_findings_are_not_shown_and_the_gate_is(gated: Report) -> None:
    assert [(level, properties["title"]) for level, properties, _ in commands(gated)] == [
        ("error", "CGD101 frozen-in-graph"),
        ("error", "too little was checked"),
        ("notice", "fixed"),
        ("warning", "unused"),
    ]


def test_a_clean_run_says_what_was_checked(clean: Report) -> None:
    title = "cudagraph-doctor serving/decode.py:target"
    assert commands(clean) == [("notice", {"title": title}, "diff: passed; 3 steps.")]
