"""Which line of the repository a finding is shown on."""

from __future__ import annotations

import dataclasses

from cudagraph_doctor.findings import Location, Report
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
