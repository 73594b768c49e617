"""Findings of the free-running pass as flags."""

from __future__ import annotations

from dataclasses import replace

from cudagraph_doctor.findings import Culprit, Finding, Proof, Severity
from cudagraph_doctor.proof.cases import Case
from cudagraph_doctor.proof.diagnose import Diagnosis
from cudagraph_doctor.proof.places import Places
from cudagraph_doctor.proof.subject import Planned
from cudagraph_doctor.proof.verdict import Kind, StepRecord
from cudagraph_doctor.replays import told_elsewhere
from cudagraph_doctor.replays.accuse import Accused
from cudagraph_doctor.replays.freed import Lost
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


def test_freed_memory_is_told_once(made_up: History) -> None:
    accused = Accused()
    some = [Lost(Planned(step, step, 4, 4), "attend, parameter 2", 512) for step in (0, 2)]
    told_elsewhere.add_lost(accused, some, made_up)
    (found,) = findings(replace(made_up, flags=tuple(accused.flags), trials=tuple(accused.trials)))
    assert (found.code, found.proof) == ("CGD307", Proof.CONFIRMED)
    assert "reads memory that is freed (read by attend, parameter 2)" in found.message
    assert "Zeros in these 512 bytes, right before the replay, change its result" in found.message
    assert "healed_by" not in found.evidence and "zeros" in found.evidence["shown_by"]


def test_memory_with_another_owner_is_told_of_steps_that_nothing_else_explains(made_up: History) -> None:
    at = Planned(0, 0, 4, 4)
    reused = Lost(at, "attend, parameter 2", 512, "engine.history")
    accused = Accused()
    told_elsewhere.add_lost(accused, [reused], made_up)
    assert not accused.flags
    accused.unexplained.append(Case(at, Kind.FROZEN, StepRecord(), Diagnosis(), "", Places(), (), (0,), True))
    told_elsewhere.add_lost(accused, [reused], made_up)
    assert [(flag.code, flag.name) for flag in accused.flags] == [("CGD306", "engine.history")]
    assert not accused.unexplained


def test_a_weight_that_belongs_there_is_named(made_up: History) -> None:
    accused = Accused()
    told_elsewhere.add_lost(accused, [Lost(Planned(0, 0, 4, 4), "mm, parameter 2", 512, belongs="head")], made_up)
    (found,) = findings(replace(made_up, flags=tuple(accused.flags), trials=tuple(accused.trials)))
    assert (found.code, found.proof, found.culprit and found.culprit.name) == ("CGD308", Proof.CONFIRMED, "head")
    assert "Healed by writing 512 bytes of `head`" in found.message


def test_a_step_that_is_wrong_is_explained_by_freed_memory(made_up: History) -> None:
    at, accused = Planned(0, 0, 4, 4), Accused()
    accused.unexplained.append(Case(at, Kind.FROZEN, StepRecord(), Diagnosis(), "", Places(), (), (0,), True))
    told_elsewhere.add_lost(accused, [Lost(at, "attend, parameter 2", 512)], made_up)
    assert [flag.code for flag in accused.flags] == ["CGD307"] and not accused.unexplained


def test_memory_that_was_mended_by_name_is_not_told_as_freed(made_up: History) -> None:
    accused = Accused(mended={0x700})
    told_elsewhere.add_lost(accused, [Lost(Planned(0, 0, 4, 4), "attend, parameter 2", 512, address=0x700)], made_up)
    assert not accused.flags
