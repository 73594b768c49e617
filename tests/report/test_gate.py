"""What the terminal says of the gate."""

from __future__ import annotations

import dataclasses

from cudagraph_doctor.findings import Report
from cudagraph_doctor.report import terminal
from cudagraph_doctor.report.gate import lines
from cudagraph_doctor.report.view import View


def test_accepted_findings_are_listed_and_not_counted(gated: Report) -> None:
    text = terminal.render(gated, View(width=200))
    assert "Found 1 error:" in text
    assert "1. error CGD101" in text and "2. " not in text
    assert "Not counted: CGD102 graph-differs-from-eager, known in the baseline baseline.json. `slot_mapping`" in text
    assert "Not counted: CGD107 graph-numerics, ignored by pyproject.toml: rounding is fine." in text
    assert "Fixed: CGD103 unsafe-padding, input x, is gone" in text
    assert "Unused: CGD2 in pyproject.toml (not ours) ignored nothing." in text


def test_what_was_demanded_in_vain_is_no_clean_run(gated: Report) -> None:
    text = " ".join(terminal.render(gated, View()).split())
    assert "The run is incomplete, there may be more: diff: 50.0% could be judged" in text


def test_of_a_trace_as_well(gated: Report) -> None:
    [outcome] = gated.outcomes
    trace = dataclasses.replace(gated, outcomes=(dataclasses.replace(outcome, check="buckets", steps=()),))
    assert "Inconclusive: diff: 50.0% could be judged" in terminal.render(trace, View())


def test_a_report_that_was_held_to_nothing_says_nothing(found: Report) -> None:
    assert list(lines(found)) == []
