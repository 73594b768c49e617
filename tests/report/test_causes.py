"""A checkup in every format: one result a fault, the others beside it; what was and was not looked at, once."""

from __future__ import annotations

import dataclasses
import json
import xml.etree.ElementTree as ET

import pytest

from cudagraph_doctor.causes.join import joined
from cudagraph_doctor.findings import Accepted, Outcome, Proof, Report, Status
from cudagraph_doctor.gate.baseline import of_reports
from cudagraph_doctor.gate.judge import Demands, judge
from cudagraph_doctor.gate.selection import COMMAND_LINE, Entry, Selection
from cudagraph_doctor.report import causes, github, junit, sarif, terminal
from cudagraph_doctor.report.view import View

EMULATED = "CUDA kernels: operators ran in their CPU form"


@pytest.fixture
def report(found: Report) -> Report:
    """A fault that `diff` and `inputs` found, a note of `diff`, and a check that was skipped."""
    [diff] = found.outcomes
    frozen, rounding = diff.findings
    place = {"graph": "4", "node": 7, "parameter": 3}
    frozen = dataclasses.replace(frozen, evidence={**frozen.evidence, "places": [place]})
    baked = dataclasses.replace(frozen, code="CGD301", message="`slots` is never refreshed. Step 3, 4 rows: differs.")
    outcomes = (
        dataclasses.replace(diff, findings=(frozen, rounding), not_checked=(EMULATED,)),
        Outcome("inputs", Status.FOUND, findings=(baked,), rules=("CGD301",), not_checked=(EMULATED, "unnamed memory")),
        Outcome("buckets", Status.SKIPPED, "no trace was given.", "Give --trace."),
    )
    return joined(dataclasses.replace(found, outcomes=outcomes, settings={"check": "checkup"}))


def test_the_narrative_comes_first_then_the_evidence_then_what_was_looked_at(report: Report) -> None:
    text = terminal.render(report, View(width=120))
    assert "Found 1 root cause: `slots` is never refreshed." in text
    order = [
        "Wrong     `slots` is never",
        "Why       input slot_mapping",
        "Do        Copy",
        "Evidence  · the replay differs",
    ]
    order += ["Proof     confirmed", "Same      diff: CGD101", "note CGD107", "Checked:", "Not checked:"]
    assert [text.index(words) for words in order] == sorted(text.index(words) for words in order)
    assert text.count(EMULATED) == 1 and "unnamed memory (inputs)" in text
    assert "no trace was given. Give --trace." in text


def test_a_clean_one_says_what_was_looked_at(report: Report) -> None:
    outcomes = tuple(
        dataclasses.replace(o, findings=(), status=o.status if o.status is Status.SKIPPED else Status.PASSED)
        for o in report.outcomes
    )
    text = terminal.render(dataclasses.replace(report, outcomes=outcomes, causes=()), View(width=120))
    assert "Clean: nothing wrong was found" in text
    assert "6 steps; 2 graphs replayed; batch sizes 1, 3, 4" in text


def test_a_fault_is_first_seen_where_the_first_check_sees_it(report: Report) -> None:
    diff, inputs, buckets = report.outcomes
    earlier = dataclasses.replace(inputs.findings[0], step=2)
    told = dataclasses.replace(report, outcomes=(diff, dataclasses.replace(inputs, findings=(earlier,)), buckets))
    assert "bucket 4, first at step 2" in terminal.render(joined(told), View(width=120))
    later = dataclasses.replace(earlier, step=5)
    told = dataclasses.replace(report, outcomes=(diff, dataclasses.replace(inputs, findings=(later,)), buckets))
    assert "bucket 4, first at step 3" in terminal.render(joined(told), View(width=120))


def test_the_first_sentence_says_that_there_are_more(report: Report) -> None:
    diff, inputs, buckets = report.outcomes
    [baked] = inputs.findings
    other = dataclasses.replace(baked, code="CGD302", evidence={"places": [{"graph": "4", "node": 9, "parameter": 0}]})
    told = dataclasses.replace(report, outcomes=(diff, dataclasses.replace(inputs, findings=(baked, other)), buckets))
    text = terminal.render(joined(told), View(width=120))
    assert "Found 2 root causes: `slots` is never refreshed. And 1 more: see below." in text


def test_messages_are_cut_before_their_particulars(report: Report) -> None:
    assert causes.wrong(report.findings[0]) == "`slot_mapping` is not refreshed before the replay"


def test_one_result_a_fault_in_the_formats_for_programs(report: Report) -> None:
    judged = judge(report, Demands())
    [run] = json.loads(sarif.render(judged, View()))["runs"]
    assert [result["ruleId"] for result in run["results"]] == ["CGD301", "CGD107"]
    assert run["results"][0]["properties"]["sameFault"][0].startswith("CGD101 frozen-in-graph: ")
    errors = [line for line in github.render(judged, View()).splitlines() if line.startswith("::error")]
    assert len(errors) == 1 and "CGD301" in errors[0]
    suites = ET.fromstring(junit.render(judged, View()).encode()).iter("testsuite")
    assert {suite.get("name"): suite.get("failures") for suite in suites} == {
        "diff": "0",
        "inputs": "1",
        "buckets": "0",
    }


def test_what_leads_decides_for_all(report: Report) -> None:
    ignoring = Selection((Entry("CGD301", COMMAND_LINE, ignores=True),))
    ignored = judge(report, Demands(selection=ignoring))
    assert [finding.accepted is not None for finding in ignored.findings] == [True, False, True]
    assert ignored.gate is not None and ignored.gate.exit_code == 0
    assert "1. error" not in terminal.render(ignored, View())
    known = judge(report, Demands(baseline=of_reports([report])))
    assert known.gate is not None and known.gate.exit_code == 0
    beside = Selection((Entry("CGD101", COMMAND_LINE, ignores=True),))
    assert getattr(judge(report, Demands(selection=beside)).gate, "exit_code", None) == 1


def test_suspicions_are_told_as_such(report: Report) -> None:
    suspected = dataclasses.replace(report.findings[2], proof=Proof.SUSPECTED, evidence={})
    outcome = dataclasses.replace(report.outcomes[1], findings=(suspected,))
    text = terminal.render(joined(dataclasses.replace(report, outcomes=(outcome,))), View())
    assert "suspected only" in text


def test_accepted_ones_stay_out(report: Report) -> None:
    known = Accepted("known", "baseline.json")
    outcomes = tuple(
        dataclasses.replace(o, findings=tuple(dataclasses.replace(f, accepted=known) for f in o.findings))
        for o in report.outcomes
    )
    assert "root cause" not in terminal.render(dataclasses.replace(report, outcomes=outcomes), View())
