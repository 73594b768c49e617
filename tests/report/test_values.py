"""`--no-values`."""

from __future__ import annotations

import dataclasses

from cudagraph_doctor.findings import Report
from cudagraph_doctor.report.json import render
from cudagraph_doctor.report.values import without_values
from cudagraph_doctor.report.view import View


def test_values_are_gone_and_the_rest_stays(found: Report) -> None:
    [outcome] = found.outcomes
    frozen = dataclasses.replace(outcome.findings[0], evidence={"first_values": [31337], "healed_by": "writing"})
    report = dataclasses.replace(found, outcomes=(dataclasses.replace(outcome, findings=(frozen,)),))
    hidden = without_values(report)
    text = render(hidden, View())
    assert "31337" not in text
    assert "48" not in text
    [finding] = hidden.findings
    assert finding.evidence == {"healed_by": "writing"}
    assert finding.fingerprint == frozen.fingerprint
    assert finding.culprit
    assert finding.culprit.name == "slot_mapping"
    assert without_values(hidden) == hidden


def test_a_finding_without_culprit(found: Report) -> None:
    [outcome] = found.outcomes
    only_note = dataclasses.replace(found, outcomes=(dataclasses.replace(outcome, findings=outcome.findings[1:]),))
    assert without_values(only_note) == only_note
