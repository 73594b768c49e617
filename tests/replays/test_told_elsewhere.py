"""Findings of the free-running pass as flags."""

from __future__ import annotations

from dataclasses import replace

from cudagraph_doctor.findings import Culprit, Finding, Proof, Severity
from cudagraph_doctor.replays import told_elsewhere
from cudagraph_doctor.replays.accuse import Accused
from cudagraph_doctor.replays.model import History
from cudagraph_doctor.replays.wording import findings

KEPT = Finding(
    "CGD104", "kept", Severity.ERROR, Proof.CONFIRMED, "clone", culprit=Culprit("output", "engine.kept"), step=1
)


def test_a_kept_output_is_a_finding_of_inputs(made_up: History) -> None:
    accused = Accused()
    told_elsewhere.add(accused, [KEPT, replace(KEPT, code="CGD105")], made_up)
    (found,) = findings(replace(made_up, flags=tuple(accused.flags), trials=tuple(accused.trials)))
    assert (found.code, found.step, found.proof) == ("CGD313", 1, Proof.CONFIRMED)
    assert "Healed by giving `engine.kept` memory of its own" in found.message


def test_what_was_only_measured_has_no_trial(made_up: History) -> None:
    accused = Accused()
    told_elsewhere.add(accused, [replace(KEPT, proof=Proof.MEASURED)], made_up)
    assert len(accused.flags) == 1 and not accused.trials
