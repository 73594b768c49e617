"""Every format is a pure function of the report and the view."""

from __future__ import annotations

import pytest

from cudagraph_doctor.findings import Report
from cudagraph_doctor.report import REPORTERS
from cudagraph_doctor.report.view import View


@pytest.mark.parametrize("name", REPORTERS)
def test_every_format_renders_every_report(name: str, found: Report, clean: Report, incomplete: Report) -> None:
    render = REPORTERS[name]
    texts = [render(report, View()) for report in (found, clean, incomplete)]
    assert len(set(texts)) == 3 or name == "csv"  # steps only: reports without steps look alike
    assert texts == [render(report, View()) for report in (found, clean, incomplete)]
    assert all(text.endswith("\n") and not text.endswith("\n\n") for text in texts)
