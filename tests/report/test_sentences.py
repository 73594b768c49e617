"""The sentences that JUnit, SARIF and annotations share."""

from __future__ import annotations

import dataclasses

import pytest

from cudagraph_doctor.findings import Accepted, Outcome, Proof, Report, Status
from cudagraph_doctor.report import sentences


def test_title_of_a_known_and_of_a_newer_rule() -> None:
    assert sentences.title("CGD101") == "CGD101 frozen-in-graph"
    assert sentences.title("CGD999") == "CGD999"


@pytest.mark.parametrize(
    ("things", "one"),
    [
        ("steps", "1 step"),
        ("captures compared", "1 capture compared"),
        ("operations while a capture was open", "1 operation while a capture was open"),
        ("addresses in nodes read", "1 address in nodes read"),
        ("nodes that cannot be read", "1 node that cannot be read"),
        ("unreadable nodes", "1 unreadable node"),
        ("misses", "1 miss"),
        ("unnamed", "1 unnamed"),
    ],
)
def test_things_are_counted(things: str, one: str) -> None:
    assert (sentences.counted(1, things), sentences.counted(0, things)) == (one, f"0 {things}")


def test_a_suspicion_is_called_one(found: Report) -> None:
    frozen = found.findings[0]
    assert "Suspected" not in sentences.short(frozen)
    assert "Suspected only" in sentences.short(dataclasses.replace(frozen, proof=Proof.SUSPECTED))


def test_long_tells_culprit_values_places_proof_and_fix(found: Report) -> None:
    text = sentences.long(found.findings[0])
    for line in (
        "Culprit: input slot_mapping, rows 1 to 3",
        "  captured: [16, 32, 48]",
        "  expected: [17, 33, 49]",
        "Where: replayed: /app/serving/decode.py:120 in Runner.run: graph.replay()",
        "Where: captured: /app/serving/decode.py:88 in Runner.capture: with torch.cuda.graph(graph):",
        "Proof: confirmed, healed by writing 24 bytes of `slot_mapping`",
        "Fix: Copy this step's `slot_mapping` into the captured buffer before each replay.",
    ):
        assert line in text.splitlines()


def test_acceptance() -> None:
    assert sentences.acceptance(Accepted("known", "known.json")) == "known in the baseline known.json"
    assert sentences.acceptance(Accepted("ignored", "target", "only logged")) == "ignored by target: only logged"


def test_summary_has_the_numbers_or_the_reason() -> None:
    passed = Outcome("diff", Status.PASSED, checked={"steps": 24, "form": "loop", "graphs": 3}, coverage=0.75)
    assert sentences.summary(passed) == "diff: passed; 24 steps, 3 graphs, 75% of what was to be judged."
    lost = Outcome("capture", Status.INCONCLUSIVE, "The process was lost.", "See what it printed.")
    assert sentences.summary(lost) == "capture: inconclusive; The process was lost; See what it printed."
