"""A report held to everything that can be demanded."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from cudagraph_doctor.findings import Accepted, Finding, Gate, Report
from cudagraph_doctor.gate import baseline
from cudagraph_doctor.gate.judge import Demands, judge
from cudagraph_doctor.gate.selection import COMMAND_LINE, Entry, Selection

Fault = Callable[..., Finding]
Ran = Callable[..., Report]


def accepted(report: Report) -> list[str]:
    return [finding.accepted.how if finding.accepted else "" for finding in report.findings]


def test_without_demands(ran: Ran, fault: Fault) -> None:
    assert judge(ran(), Demands()).gate == Gate("error", 0)
    assert judge(ran(fault()), Demands()).gate == Gate("error", 1)
    assert judge(ran(fault()), Demands("never")).gate == Gate("never", 0)


def test_ignored_by_the_command_line_and_by_the_target(ran: Ran, fault: Fault) -> None:
    report = ran(fault("CGD101"), fault("CGD102"))
    own = dataclasses.replace(report, target={**report.target, "ignore": {"CGD102": "known to be fine"}})
    judged = judge(own, Demands(selection=Selection((Entry("CGD101", COMMAND_LINE, True),))))
    assert [f.accepted for f in judged.findings] == [
        Accepted("ignored", "command line"),
        Accepted("ignored", "target", "known to be fine"),
    ]
    assert judged.gate == Gate("error", 0)


def test_known_ones_do_not_fail_and_new_ones_do(ran: Ran, fault: Fault) -> None:
    known = dataclasses.replace(baseline.of_reports([ran(fault("CGD101"))]), file="known.json")
    demands = Demands(baseline=known)
    judged = judge(ran(fault("CGD101")), demands)
    assert accepted(judged) == ["known"]
    assert judged.gate == Gate("error", 0, "known.json")
    judged = judge(ran(fault("CGD101"), fault("CGD102")), demands)
    assert accepted(judged) == ["known", ""]
    assert judged.gate == Gate("error", 1, "known.json")
    judged = judge(ran(), demands)
    assert judged.gate and judged.gate.exit_code == 0
    assert [text[:22] for text in judged.gate.fixed] == ["CGD101 frozen-in-graph"]


def test_an_ignored_finding_uses_up_no_known_one(ran: Ran, fault: Fault) -> None:
    known = baseline.of_reports([ran(fault("CGD101"))])
    ignoring = Selection((Entry("CGD101", COMMAND_LINE, True),))
    judged = judge(ran(fault("CGD101")), Demands(selection=ignoring, baseline=known))
    assert accepted(judged) == ["ignored"]
    assert judged.gate and judged.gate.fixed == ()


def test_too_little_is_inconclusive_and_findings_come_first(ran: Ran, fault: Fault) -> None:
    demands = Demands(min_coverage=0.9, compare=ran(steps=8))
    judged = judge(ran(coverage=0.5), demands)
    assert judged.gate and judged.gate.exit_code == 3
    assert len(judged.gate.unmet) == 3
    judged = judge(ran(fault(), coverage=0.5), demands)
    assert judged.gate and judged.gate.exit_code == 1


def test_judging_anew_forgets_what_was_accepted(ran: Ran, fault: Fault) -> None:
    ignoring = Demands(selection=Selection((Entry("CGD1", COMMAND_LINE, True),)))
    assert judge(judge(ran(fault()), ignoring), Demands()).gate == Gate("error", 1)
