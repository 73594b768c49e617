"""The report as SARIF 2.1.0, for code scanning: rules with their pages, results with places and fingerprints.

A clean run is told too: every rule that was evaluated is listed, and the invocation says what was looked at and what
was not. GitHub refuses a result without a place in the repository: see `_locations`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from cudagraph_doctor.findings import Finding, Location, Outcome, Report, Severity, Status
from cudagraph_doctor.policy import gate_of
from cudagraph_doctor.report import anchors, sentences
from cudagraph_doctor.report.anchors import Anchor
from cudagraph_doctor.report.json import finite
from cudagraph_doctor.report.printable import all_printable
from cudagraph_doctor.report.view import View
from cudagraph_doctor.rules import RULES, page

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
FINGERPRINT = "cudagraphDoctor/v1"
"""Key of the fingerprint of a result. The number changes with what the fingerprint is made of."""
_ROOT = "%SRCROOT%"

Json = dict[str, Any]


def render(report: Report, view: View) -> str:
    """One run; a newline at the end."""
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [_run(all_printable(report), view)]}
    return json.dumps(finite(log), indent=2, ensure_ascii=False, allow_nan=False, default=str) + "\n"


def _run(report: Report, view: View) -> Json:
    codes = sorted({code for o in report.outcomes for code in (*o.rules, *(f.code for f in o.findings))})
    checks = "+".join(outcome.check for outcome in report.outcomes)
    return {
        "tool": {
            "driver": {
                "name": "cudagraph-doctor",
                "semanticVersion": str(report.tool.get("version", "0.0.0")),
                **({"informationUri": view.docs_url} if view.docs_url else {}),
                "rules": [_rule(code, view.docs_url) for code in codes],
            }
        },
        # what code scanning tells runs apart by: up to the last slash
        "automationDetails": {"id": f"cudagraph-doctor/{checks}/{report.target.get('spec', '')}/"},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {_ROOT: {"description": {"text": "The top of the repository."}}},
        "invocations": [_invocation(report)],
        "results": [
            _result(finding, codes.index(finding.code), report)
            for finding in report.roots
            if finding.accepted is None or finding.accepted.how == "known"
        ],
        "properties": {"environment": report.environment, "target": report.target, "settings": report.settings},
    }


def _rule(code: str, docs_url: str) -> Json:
    rule = RULES.get(code)
    if rule is None:  # of another version than the one that shows the report
        return {"id": code}
    text = _help(code)
    return {
        "id": code,
        "name": rule.name,
        "shortDescription": {"text": rule.summary},
        "fullDescription": {"text": _section(text, "What it finds")},
        "help": {"text": text, "markdown": text},
        **({"helpUri": f"{docs_url.rstrip('/')}/rules/{code}/"} if docs_url else {}),
        "defaultConfiguration": {"level": rule.severity.value},
        "properties": {"tags": ["cuda-graphs", rule.check], "precision": "very-high"},
    }


def _help(code: str) -> str:
    """The rule's page without its title, links to its neighbours and remarks for tools."""
    text = re.sub(r"<!--.*?-->\n", "", page(code))
    text = re.sub(r"\[([^\]]+)\]\([^)]*\.md(?:#[\w-]+)?\)", r"\1", text)
    return text.partition("\n")[2].strip()


def _section(text: str, heading: str) -> str:
    found = re.search(rf"^## {heading}$\n(.*?)(?=^## |\Z)", text, flags=re.M | re.S)
    return " ".join(found[1].split()) if found else ""


def _result(finding: Finding, index: int, report: Report) -> Json:
    known = gate_of(report).baseline
    return {
        "ruleId": finding.code,
        "ruleIndex": index,
        "level": finding.severity.value,
        "message": {"text": sentences.short(finding)},
        "locations": _locations(finding, report),
        "relatedLocations": _related(finding, report),
        "partialFingerprints": {FINGERPRINT: finding.fingerprint},
        **({"baselineState": "unchanged" if finding.accepted else "new"} if known else {}),
        "properties": {
            "proof": finding.proof.value,
            "culprit": f"{finding.culprit.kind} {finding.culprit.name}" if finding.culprit else "",
            "bucket": finding.key,
            "step": finding.step,
            "rank": finding.rank,
            "backend": finding.backend,
            "evidence": finding.evidence,
            **_same_fault(finding, report),
        },
    }


def _same_fault(finding: Finding, report: Report) -> Json:
    others = report.followers(finding)
    return {"sameFault": [f"{sentences.title(other.code)}: {other.message}" for other in others]} if others else {}


def _locations(finding: Finding, report: Report) -> list[Json]:
    """Always one, and inside of the repository: the finding's line, else the target's, else what was looked at."""
    anchor = anchors.of_finding(finding, report)
    if anchor is None:  # a step of a trace has no line; a path from elsewhere stays out of `uri`
        spec = str(report.target.get("spec") or "trace").split(" ")[0]
        anchor = Anchor(spec.rpartition("/")[2], 1)
    at = finding.location
    inside = at is not None and anchors.of_location(at, report) == anchor
    located: Json = {"physicalLocation": _physical(anchor, at.code if at and inside else "")}
    if at and at.function:
        located["logicalLocations"] = [{"fullyQualifiedName": at.function, "kind": "function"}]
    return [located]


def _related(finding: Finding, report: Report) -> list[Json]:
    """Where it was allocated, captured, replayed...: `role` says which."""
    found = []
    for number, (text, place) in enumerate(_places(finding, report), start=1):
        related: Json = {"id": number, "message": {"text": text}}
        anchor = anchors.of_location(place, report)
        if anchor:
            related["physicalLocation"] = _physical(anchor, place.code)
        else:
            related["message"]["text"] = f"{text}: {_outside(place)}"
        if place.function:
            related["logicalLocations"] = [{"fullyQualifiedName": place.function, "kind": "function"}]
        found.append(related)
    return found


def _places(finding: Finding, report: Report) -> Iterator[tuple[str, Location]]:
    """The finding's own places, then those of what other checks found of the same fault."""
    for place in finding.related:
        yield place.role or "related", place
    for other in report.followers(finding):
        if other.location is not None and other.location != finding.location:
            yield f"{sentences.title(other.code)}, of the same fault", other.location


def _outside(place: Location) -> str:
    return f"{place.file.rpartition('/')[2]}:{place.line}"


def _physical(anchor: Anchor, code: str) -> Json:
    region: Json = {"startLine": anchor.line}
    if code:
        region["snippet"] = {"text": code}
    return {"artifactLocation": {"uri": quote(anchor.file), "uriBaseId": _ROOT}, "region": region}


def _invocation(report: Report) -> Json:
    gate = gate_of(report)
    unfinished = any(o.status in (Status.INCONCLUSIVE, Status.ERRORED) for o in report.outcomes)
    started = report.tool.get("started")
    return {
        "executionSuccessful": not unfinished,
        "exitCode": gate.exit_code,
        **({"startTimeUtc": started} if started else {}),
        "toolExecutionNotifications": [n for o in report.outcomes for n in _notifications(o, report)],
        "toolConfigurationNotifications": [
            *(_notification("error", text) for text in gate.unmet),
            *(_notification("warning", f"Unused: {text}") for text in gate.unused),
            *(_notification("note", f"Fixed: {text}") for text in gate.fixed),
            *(
                _notification("note", f"{sentences.title(f.code)} is {sentences.acceptance(f.accepted)}. {f.message}")
                for f in report.roots
                if f.accepted and f.accepted.how != "known"
            ),
        ],
        "properties": {"checked": {outcome.check: outcome.checked for outcome in report.outcomes}},
    }


def _notifications(outcome: Outcome, report: Report) -> list[Json]:
    bad = outcome.status in (Status.INCONCLUSIVE, Status.ERRORED)
    summary = _notification("error" if bad else Severity.NOTE.value, sentences.summary(outcome))
    anchor = anchors.of_location(outcome.location, report) if outcome.location else None
    if anchor and outcome.location:
        summary["locations"] = [{"physicalLocation": _physical(anchor, outcome.location.code)}]
    return [summary, *(_notification("note", f"Not checked: {text}") for text in outcome.not_checked)]


def _notification(level: str, text: str) -> Json:
    return {"level": level, "message": {"text": text}}
