"""The artifact: written, read back, and refused in words."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from cudagraph_doctor.errors import UsageError
from cudagraph_doctor.findings import SCHEMA_VERSION, Report
from cudagraph_doctor.report.json import load, render
from cudagraph_doctor.report.view import View


def test_it_comes_back_as_it_was(found: Report, tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    file.write_text(render(found, View()))
    assert load(file) == found


def test_schema_version_is_first_and_findings_have_fingerprints(found: Report) -> None:
    data = json.loads(render(found, View()))
    assert next(iter(data)) == "schema_version"
    assert data["outcomes"][0]["findings"][0]["fingerprint"] == found.findings[0].fingerprint


def test_what_is_not_finite_is_text(found: Report) -> None:
    [outcome] = found.outcomes
    frozen, _ = outcome.findings
    assert frozen.culprit
    values = [float("nan"), [float("inf"), -float("inf")], 1.5]
    frozen = dataclasses.replace(frozen, culprit=dataclasses.replace(frozen.culprit, captured=values))
    report = dataclasses.replace(found, outcomes=(dataclasses.replace(outcome, findings=(frozen,)),))
    text = render(report, View())
    data = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert data["outcomes"][0]["findings"][0]["culprit"]["captured"] == ["nan", ["inf", "-inf"], 1.5]


def damaged(found: Report, **changes: Any) -> str:
    return json.dumps({**json.loads(render(found, View())), **changes})


@pytest.mark.parametrize("cut", [0, 1, 100, -2])
def test_a_file_cut_short(found: Report, tmp_path: Path, cut: int) -> None:
    file = tmp_path / "run.json"
    file.write_text(render(found, View())[:cut])
    with pytest.raises(UsageError, match="no complete JSON"):
        load(file)


def test_where_a_file_is_damaged(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    file.write_text('{"schema_version": 1,\n "tool": oops}')
    with pytest.raises(UsageError) as refused:
        load(file)
    assert "line 2, column 10 does not parse" in str(refused.value)
    assert "at 'oops}'" in str(refused.value)


def test_a_number_that_python_does_not_read(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    file.write_text('{"schema_version": ' + "1" * 5000 + "}")
    with pytest.raises(UsageError, match="cannot be read"):
        load(file)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"schema_version": SCHEMA_VERSION + 1}, "Upgrade cudagraph-doctor"),
        ({"schema_version": "1"}, "no schema_version"),
        ({"outcomes": [{"check": "diff"}]}, "no whole report"),
        ({"outcomes": [{"check": "diff", "status": "fine"}]}, "no whole report"),
        ({"outcomes": 3}, "no whole report"),
        ({"outcomes": ["diff"]}, "no whole report"),
        ({"outcomes": [{"check": "diff", "status": "found", "findings": [{}]}]}, "no whole report"),
        ({"extra": 1}, "no whole report"),
        ({"extra": 1}, 'the field "extra" is not one that a report has'),
        ({"outcomes": [{"check": "diff"}]}, 'the field "status" is missing'),
        ({"outcomes": [{"check": "diff", "status": "fine"}]}, "'fine' is no status that a report has"),
        ({"outcomes": [{"status": "found"}]}, "fields are missing: 'check'"),
        ({"outcomes": 3}, "of another type"),
    ],
)
def test_a_damaged_report(found: Report, tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    file = tmp_path / "run.json"
    file.write_text(damaged(found, **changes))
    with pytest.raises(UsageError) as refused:
        load(file)
    assert said in str(refused.value)


@pytest.mark.parametrize("alien", ["[]", "{}", "null", '"text"', '{"traceEvents": []}', "1", "[" * 100_000])
def test_alien_json(tmp_path: Path, alien: str) -> None:
    file = tmp_path / "run.json"
    file.write_text(alien)
    with pytest.raises(UsageError):
        load(file)


def test_what_is_no_text(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    file.write_bytes(b"\x89PNG\xff\xfe")
    with pytest.raises(UsageError, match="no text file"):
        load(file)
    with pytest.raises(UsageError, match="cannot be read"):
        load(tmp_path)
