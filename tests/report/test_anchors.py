"""Which line of the repository a finding is shown on."""

from __future__ import annotations

import dataclasses

from cudagraph_doctor.findings import Location, Outcome, Report, Status
from cudagraph_doctor.report import anchors
from cudagraph_doctor.report.anchors import Anchor

OUTSIDE = Location("/usr/lib/python3/site-packages/engine/runner.py", 9)


def test_its_own_line(found: Report) -> None:
    assert anchors.of_finding(found.findings[0], found) == Anchor("serving/decode.py", 120)


def test_a_related_line_where_its_own_is_outside(found: Report) -> None:
    finding = dataclasses.replace(found.findings[0], location=OUTSIDE)
    assert anchors.of_finding(finding, found) == Anchor("serving/decode.py", 88)


def test_the_targets_line_where_there_is_no_other(found: Report) -> None:
    finding = dataclasses.replace(found.findings[0], location=OUTSIDE, related=())
    assert anchors.of_finding(finding, found) is None
    target = {**found.target, "file": "/app/serving/doctor.py", "line": 7}
    assert anchors.of_finding(finding, dataclasses.replace(found, target=target)) == Anchor("serving/doctor.py", 7)


def test_a_line_is_never_zero(found: Report) -> None:
    assert anchors.of_location(Location("/app/x.py", 0), found) == Anchor("x.py", 1)


def test_of_a_check_that_was_ended(found: Report) -> None:
    ended = Outcome("diff", Status.INCONCLUSIVE, location=Location("/app/x.py", 3))
    report = dataclasses.replace(found, target={"file": "/app/doctor.py", "line": 7})
    assert anchors.of_outcome(ended, report) == Anchor("x.py", 3)
    assert anchors.of_outcome(dataclasses.replace(ended, location=OUTSIDE), report) == Anchor("doctor.py", 7)
    assert anchors.of_outcome(dataclasses.replace(ended, location=None), found) is None
