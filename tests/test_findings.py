"""What a run says survives JSON, and a fault keeps its fingerprint while numbers and lines change."""

from __future__ import annotations

import dataclasses
import json

import pytest

from cudagraph_doctor.findings import (
    SCHEMA_VERSION,
    Accepted,
    Culprit,
    Finding,
    Gate,
    Location,
    Outcome,
    Proof,
    Report,
    Severity,
    Status,
    Step,
    report_from_json,
    to_json,
)

PLACE = Location("/src/serving/decode.py", 12, "update", "static.slots = fresh.slots", "staged")
FINDING = Finding(
    code="CGD101",
    message="Graph 4 reads the slots of step 12.",
    severity=Severity.ERROR,
    proof=Proof.CONFIRMED,
    fix="Copy into slot_mapping.",
    culprit=Culprit("input", "slot_mapping", "rows 0 to 3", captured=[0, 1], expected=[16, 17]),
    location=PLACE,
    related=(Location("/src/serving/decode.py", 40, role="captured"),),
    step=1,
    key="4",
    rank=0,
    backend="emulated",
    evidence={"healed_by": "slot_mapping", "controls": [0.0, 0.0]},
    accepted=Accepted("ignored", "target", "only logged"),
)
REPORT = Report(
    tool={"version": "0.1.0"},
    environment={"backend": "emulated"},
    target={"spec": "reference"},
    outcomes=(
        Outcome(
            check="diff",
            status=Status.FOUND,
            not_checked=("order between streams",),
            checked={"steps": 8},
            steps=(Step(0, 3, "4", "clean", {"kind": "clean"}),),
            findings=(FINDING,),
            rules=("CGD101", "CGD102"),
            seconds=1.5,
            coverage=0.75,
        ),
        Outcome("inputs", Status.SKIPPED, reason="no target", fix="name one", location=PLACE),
    ),
    settings={"steps": 8},
    gate=Gate("warning", 1, "known.json", ("gone",), ("CGD2",), ("too little",)),
)


def through_json(report: Report) -> Report:
    return report_from_json(json.loads(json.dumps(to_json(report))))


def test_a_report_survives_json() -> None:
    assert through_json(REPORT) == REPORT


def test_an_empty_report_survives_json() -> None:
    empty = Report({}, {}, {}, ())
    assert through_json(empty) == empty
    assert empty.findings == ()


def test_json_has_the_schema_version_and_fingerprints() -> None:
    plain = to_json(REPORT)
    assert plain["schema_version"] == SCHEMA_VERSION
    assert plain["outcomes"][0]["findings"][0]["fingerprint"] == FINDING.fingerprint


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("outcomes", 0, "status"), "fine"),
        (("outcomes", 0, "findings", 0, "severity"), "fatal"),
        (("outcomes", 0, "findings", 0, "colour"), "red"),
        (("outcomes", 0, "steps", 0), {"index": 0}),
        (("outcomes", 0, "findings", 0, "accepted"), {"reason": "none"}),
        (("gate",), {"exit": 1}),
    ],
)
def test_a_malformed_report_is_refused(path: tuple[str | int, ...], value: object) -> None:
    plain = to_json(REPORT)
    place = plain
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises((KeyError, TypeError, ValueError)):
        report_from_json(plain)


def test_severities_are_in_order() -> None:
    assert Severity.NOTE.rank < Severity.WARNING.rank < Severity.ERROR.rank


def test_findings_of_a_report_are_in_the_order_of_the_checks() -> None:
    other = dataclasses.replace(FINDING, code="CGD103")
    outcomes = (Outcome("a", Status.FOUND, findings=(other,)), Outcome("b", Status.FOUND, findings=(FINDING,)))
    assert [f.code for f in Report({}, {}, {}, outcomes).findings] == ["CGD103", "CGD101"]


SAME_FAULT = {
    "another message": {"message": "Graph 4 reads the slots of step 99."},
    "another line": {"location": dataclasses.replace(PLACE, line=99)},
    "another checkout": {"location": dataclasses.replace(PLACE, file="/elsewhere/decode.py")},
    "another step and bucket": {"step": 7, "key": "8"},
    "other numbers": {"evidence": {}, "proof": Proof.MEASURED},
    "another indentation": {"location": dataclasses.replace(PLACE, code="static.slots  =  fresh.slots")},
    "accepted": {"accepted": None},
    "other values": {"culprit": Culprit("input", "slot_mapping", "rows 0 to 3", captured=[9], expected=[8])},
}
OTHER_FAULT = {
    "another code": {"code": "CGD102"},
    "another culprit": {"culprit": Culprit("input", "positions")},
    "another function": {"location": dataclasses.replace(PLACE, function="capture")},
    "another line of the same function": {"location": dataclasses.replace(PLACE, code="static.x = fresh.x")},
    "no culprit": {"culprit": None},
}


@pytest.mark.parametrize("change", SAME_FAULT.values(), ids=SAME_FAULT)
def test_fingerprint_stays(change: dict[str, object]) -> None:
    assert dataclasses.replace(FINDING, **change).fingerprint == FINDING.fingerprint  # type: ignore[arg-type]


@pytest.mark.parametrize("change", OTHER_FAULT.values(), ids=OTHER_FAULT)
def test_fingerprint_tells_faults_apart(change: dict[str, object]) -> None:
    assert dataclasses.replace(FINDING, **change).fingerprint != FINDING.fingerprint  # type: ignore[arg-type]


def test_what_has_no_name_and_no_place_is_told_by_its_message_without_numbers() -> None:
    nameless = dataclasses.replace(FINDING, culprit=None, location=None, message="Graph 4 read 0x7f12 at step 12.")
    again = dataclasses.replace(nameless, message="Graph 16 read 0xbeef at step 3.")
    assert again.fingerprint == nameless.fingerprint
    assert dataclasses.replace(nameless, message="Graph 4 wrote.").fingerprint != nameless.fingerprint


def test_a_name_that_has_no_encoding_has_a_fingerprint() -> None:
    """Such as a file's under LC_ALL=C."""
    unnamed = dataclasses.replace(FINDING, culprit=Culprit("module", "gr\udcc3\udcb6\udcc3\udc9fe"))
    assert len(unnamed.fingerprint) == 16
