"""Findings of all checks become causes: which lead, which follow, which stay apart, and in which order."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from cudagraph_doctor.causes.join import joined
from cudagraph_doctor.findings import Proof, Report, Severity, report_from_json, to_json

if TYPE_CHECKING:
    from tests.causes.conftest import Checked, Make

A, B = ({"graph": "4", "node": node, "parameter": 0} for node in (1, 2))


def told(report: Report) -> list[list[str]]:
    """The codes of each cause, the leading one first."""
    findings = report.findings
    return [[findings[number].code for number in (cause.leading, *cause.others)] for cause in joined(report).causes]


def test_one_fault_of_two_checks_is_led_by_the_one_that_tells_most(make: Make, checked: Checked) -> None:
    report = checked(diff=[make("CGD102", "x", places=[A])], inputs=[make("CGD301", "y", places=[A])])
    assert told(report) == [["CGD301", "CGD102"]]
    assert [finding.code for finding in joined(report).roots] == ["CGD301"]
    assert [finding.code for finding in joined(report).followers(report.findings[1])] == ["CGD102"]


def test_what_is_proven_leads_before_what_is_measured(make: Make, checked: Checked) -> None:
    measured = make("CGD323", "y", places=[A], proof=Proof.MEASURED)
    assert told(checked(diff=[make("CGD101", "x", places=[A])], inputs=[measured])) == [["CGD101", "CGD323"]]


def test_two_faults_stay_apart(make: Make, checked: Checked) -> None:
    diff = [make("CGD102", "x", places=[A]), make("CGD101", "y", places=[B])]
    inputs = [make("CGD320", "y", places=[B]), make("CGD301", "x", places=[A])]
    assert sorted(told(checked(diff=diff, inputs=inputs))) == [["CGD301", "CGD102"], ["CGD320", "CGD101"]]


def test_harm_without_a_name_goes_with_what_heals_it(make: Make, checked: Checked) -> None:
    differs = make("CGD102", proof=Proof.MEASURED, seen_at_steps=[1, 2])
    healed = make("CGD310", "x", places=[A], seen_at_steps=[1])
    assert told(checked(diff=[differs], inputs=[healed], bad={"inputs": (1,)})) == [["CGD310", "CGD102"]]
    # step 2 is bad there as well and nothing mends it: a fault of its own
    assert told(checked(diff=[differs], inputs=[healed], bad={"inputs": (1, 2)})) == [["CGD310"], ["CGD102"]]


def test_an_order_that_copies_heal_goes_with_the_copy(make: Make, checked: Checked) -> None:
    order = make("CGD105", seen_at_steps=[2, 3, 4])
    copied = make("CGD311", "host", seen_at_steps=[1, 2, 3, 4])
    assert told(checked(diff=[order], inputs=[copied])) == [["CGD311", "CGD105"]]
    edge = make("CGD105", "static.even.slots")  # another edge than a copy's
    assert sorted(told(checked(diff=[edge], inputs=[copied]))) == [["CGD105"], ["CGD311"]]


def test_harm_that_two_faults_do_together_goes_with_one_of_them(make: Make, checked: Checked) -> None:
    differs = make("CGD102", proof=Proof.MEASURED, seen_at_steps=[1, 2])
    healed = [make("CGD301", "x", places=[A], seen_at_steps=[1]), make("CGD310", "y", places=[B], seen_at_steps=[2])]
    report = checked(diff=[differs], inputs=healed, bad={"inputs": (1, 2)})
    assert told(report) == [["CGD301", "CGD102"], ["CGD310"]]


def test_the_worst_comes_first_and_suspicions_last(make: Make, checked: Checked) -> None:
    suspected = make("CGD301", "a", proof=Proof.SUSPECTED)
    warned = make("CGD217", "b", severity=Severity.WARNING)
    assert told(checked(capture=[suspected, warned], diff=[make("CGD101", "c")])) == [
        ["CGD101"],
        ["CGD217"],
        ["CGD301"],
    ]


def test_notes_are_no_causes(make: Make, checked: Checked) -> None:
    report = joined(checked(diff=[make("CGD107", severity=Severity.NOTE)]))
    assert report.causes == () and [finding.code for finding in report.roots] == ["CGD107"]


def test_causes_survive_json(make: Make, checked: Checked) -> None:
    report = joined(checked(diff=[make("CGD102", "x", places=[A])], inputs=[make("CGD301", "y", places=[A])]))
    again = report_from_json(json.loads(json.dumps(to_json(report))))
    assert again.causes == report.causes and again.roots == report.roots
