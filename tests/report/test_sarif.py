"""SARIF: valid under the published schema, tells of clean runs too, and keeps to what code scanning accepts."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from cudagraph_doctor.findings import Finding, Location, Report
from cudagraph_doctor.report.sarif import FINGERPRINT, SCHEMA, render
from cudagraph_doctor.report.view import View
from cudagraph_doctor.rules import RULES

FILE = Path(__file__).resolve().parents[1] / "data" / "schemas" / "sarif-schema-2.1.0.json"
PUBLISHED = json.loads(FILE.read_text())
VALIDATOR = jsonschema.Draft4Validator(PUBLISHED)


def run(report: Report, view: View | None = None) -> dict[str, Any]:
    """The one run; what is rendered is valid."""
    log = json.loads(render(report, view or View()))
    VALIDATOR.validate(log)
    [only] = log["runs"]
    assert isinstance(only, dict)
    return only


def with_finding(report: Report, finding: Finding) -> Report:
    [outcome] = report.outcomes
    return dataclasses.replace(report, outcomes=(dataclasses.replace(outcome, findings=(finding,)),))


def test_it_names_the_schema_that_it_is_validated_against(found: Report) -> None:
    assert json.loads(render(found, View()))["$schema"] == SCHEMA == PUBLISHED["id"]


def test_the_schema_refuses_what_is_wrong(found: Report) -> None:
    log = json.loads(render(found, View()))
    log["runs"][0]["results"][0]["level"] = "fatal"
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate(log)


def test_a_result(found: Report) -> None:
    result, note = run(found)["results"]
    assert (result["ruleId"], result["level"]) == ("CGD101", "error")
    assert result["message"]["text"].startswith("`slot_mapping` is not refreshed")
    assert "\n\nFix: Copy this step's" in result["message"]["text"]
    [place] = result["locations"]
    assert place["physicalLocation"] == {
        "artifactLocation": {"uri": "serving/decode.py", "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 120, "snippet": {"text": "graph.replay()"}},
    }
    assert place["logicalLocations"][0]["fullyQualifiedName"] == "Runner.run"
    assert result["partialFingerprints"] == {FINGERPRINT: found.findings[0].fingerprint}
    assert result["properties"]["evidence"]["healed_by"] == "writing 24 bytes of `slot_mapping`"
    assert (note["ruleId"], note["level"]) == ("CGD107", "note")


def test_related_locations_say_what_happened_there(found: Report) -> None:
    captured, allocated = run(
        with_finding(
            found,
            dataclasses.replace(
                found.findings[0],
                related=(
                    *found.findings[0].related,
                    Location("/usr/lib/python3/site-packages/cache.py", 5, "alloc", "torch.empty(8)", "allocated"),
                ),
            ),
        )
    )["results"][0]["relatedLocations"]
    assert captured["message"]["text"] == "captured"
    assert captured["physicalLocation"]["region"]["startLine"] == 88
    assert allocated["message"]["text"] == "allocated: cache.py:5"
    assert "physicalLocation" not in allocated  # code scanning takes files of the repository only


def test_rules_come_with_their_pages(found: Report) -> None:
    driver = run(found)["tool"]["driver"]
    assert [rule["id"] for rule in driver["rules"]] == ["CGD101", "CGD107"]
    frozen = driver["rules"][0]
    assert frozen["name"] == "frozen-in-graph"
    assert frozen["shortDescription"]["text"] == RULES["CGD101"].summary
    assert frozen["defaultConfiguration"]["level"] == "error"
    assert "## Why it matters" in frozen["help"]["markdown"]
    assert "<!--" not in frozen["help"]["markdown"] and ".md)" not in frozen["help"]["markdown"]
    assert frozen["fullDescription"]["text"]
    assert "helpUri" not in frozen


def test_every_rule_has_help(found: Report) -> None:
    [outcome] = found.outcomes
    everything = dataclasses.replace(outcome, rules=tuple(RULES))
    rules = run(dataclasses.replace(found, outcomes=(everything,)))["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == list(RULES)
    for rule in rules:
        assert rule["fullDescription"]["text"] and len(rule["help"]["text"]) > 500, rule["id"]
        assert ".md)" not in rule["help"]["text"], rule["id"]


def test_rules_are_linked_where_the_documentation_is_hosted(found: Report) -> None:
    driver = run(found, View(docs_url="https://docs.example.org/doctor/"))["tool"]["driver"]
    assert driver["rules"][0]["helpUri"] == "https://docs.example.org/doctor/rules/CGD101/"


def test_a_code_of_another_version_is_shown(found: Report) -> None:
    shown = run(with_finding(found, dataclasses.replace(found.findings[0], code="CGD999")))
    assert {"id": "CGD999"} in shown["tool"]["driver"]["rules"]
    result = shown["results"][0]
    assert shown["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"] == "CGD999"


def test_a_clean_run_says_what_was_checked(clean: Report) -> None:
    [outcome] = clean.outcomes
    clean = dataclasses.replace(
        clean,
        outcomes=(dataclasses.replace(outcome, rules=("CGD101", "CGD102"), not_checked=("Races.",)),),
    )
    shown = run(clean)
    assert shown["results"] == []
    assert [rule["id"] for rule in shown["tool"]["driver"]["rules"]] == ["CGD101", "CGD102"]
    [invocation] = shown["invocations"]
    assert invocation["executionSuccessful"] is True
    assert invocation["exitCode"] == 0
    assert [n["message"]["text"] for n in invocation["toolExecutionNotifications"]] == [
        "diff: passed; 3 steps.",
        "Not checked: Races.",
    ]
    assert invocation["properties"]["checked"] == {"diff": {"steps": 3}}
    assert shown["properties"]["environment"]["backend"] == "cuda"


def test_an_incomplete_run_is_no_success(incomplete: Report) -> None:
    [invocation] = run(incomplete)["invocations"]
    assert invocation["executionSuccessful"] is False
    assert invocation["exitCode"] == 1
    lost = invocation["toolExecutionNotifications"][-1]
    assert (lost["level"], lost["message"]["text"]) == (
        "error",
        "capture: errored; A bug in cudagraph-doctor: KeyError; Report it.",
    )
    assert lost["locations"][0]["physicalLocation"]["region"] == {"startLine": 42, "snippet": {"text": "x.item()"}}


@pytest.mark.parametrize(
    ("target", "uri"),
    [
        ({"spec": "x", "file": "/app/my doctor.py", "line": 7}, "my%20doctor.py"),
        ({"spec": "runs/rank0.sqlite rank1.sqlite"}, "rank0.sqlite"),
        ({}, "trace"),
    ],
)
def test_a_result_always_has_a_place_in_the_repository(found: Report, target: dict[str, Any], uri: str) -> None:
    nowhere = dataclasses.replace(found.findings[0], location=None, related=())
    shown = run(dataclasses.replace(with_finding(found, nowhere), target=target))
    physical = shown["results"][0]["locations"][0]["physicalLocation"]
    assert physical["artifactLocation"]["uri"] == uri
    assert physical["region"]["startLine"] >= 1


def test_known_findings_are_unchanged_and_ignored_ones_are_told(gated: Report) -> None:
    shown = run(gated)
    assert [(r["ruleId"], r["baselineState"]) for r in shown["results"]] == [
        ("CGD101", "new"),
        ("CGD102", "unchanged"),
    ]
    told = shown["invocations"][0]["toolConfigurationNotifications"]
    assert [(n["level"], n["message"]["text"].split(" ")[0]) for n in told] == [
        ("error", "diff:"),
        ("warning", "Unused:"),
        ("note", "Fixed:"),
        ("note", "CGD107"),
    ]
    assert "ignored by pyproject.toml: rounding is fine" in told[-1]["message"]["text"]


def test_what_is_not_finite_stays_json(found: Report) -> None:
    odd = dataclasses.replace(found.findings[0], evidence={"largest": float("nan")})
    assert run(with_finding(found, odd))["results"][0]["properties"]["evidence"] == {"largest": "nan"}


def test_runs_of_several_checks_and_targets_are_told_apart(found: Report, clean: Report) -> None:
    one = run(found)["automationDetails"]["id"]
    other = run(dataclasses.replace(found, target={"spec": "other.py"}))["automationDetails"]["id"]
    assert one == "cudagraph-doctor/diff/serving/decode.py:target/"
    assert other == "cudagraph-doctor/diff/other.py/"
