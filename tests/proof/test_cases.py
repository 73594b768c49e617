"""Steps at which the same fault was seen are one case."""

from __future__ import annotations

import pytest
import torch

from cudagraph_doctor.proof.cases import Case, merge
from cudagraph_doctor.proof.diagnose import Diagnosis
from cudagraph_doctor.proof.places import Places
from cudagraph_doctor.proof.repair import Cause, Remedy
from cudagraph_doctor.proof.subject import Planned
from cudagraph_doctor.proof.verdict import Kind, StepRecord

AT = Planned(5, 5, 2, 4)


def stale(name: str, cause: Cause = Cause.NOT_REFRESHED) -> Remedy:
    """An input of that name."""
    return Remedy(cause, name, "input", right=torch.zeros(1))


def case(*culprits: Remedy, kind: Kind = Kind.FROZEN) -> Case:
    """First seen at step 3."""
    return Case(Planned(3, 3, 2, 4), kind, StepRecord(), Diagnosis(list(culprits)), "", Places(), (), (3,), True)


def steps(cases: list[Case]) -> list[tuple[int, ...]]:
    """Of all cases."""
    return [some.steps for some in cases]


def test_the_first_step_is_a_case_of_its_own() -> None:
    slots = stale("slots")
    assert merge([], AT, Kind.FROZEN, Diagnosis([slots])) == [slots]
    assert merge([], AT, Kind.FROZEN, Diagnosis()) == []


@pytest.mark.parametrize("kind", [Kind.FROZEN, Kind.DIFFERS])
def test_the_same_culprit_is_the_same_case(kind: Kind) -> None:
    cases = [case(stale("slots"))]
    assert merge(cases, AT, kind, Diagnosis([stale("slots", Cause.PARTLY_REFRESHED)])) is None
    assert steps(cases) == [(3, 5)]


def test_of_two_culprits_only_the_new_one_is_left() -> None:
    cases, lengths = [case(stale("slots"))], stale("seq_lens")
    assert merge(cases, AT, Kind.FROZEN, Diagnosis([stale("slots"), lengths])) == [lengths]
    assert steps(cases) == [(3, 5)]


def test_another_culprit_is_another_case() -> None:
    cases, lengths = [case(stale("slots"))], stale("seq_lens")
    assert merge(cases, AT, Kind.FROZEN, Diagnosis([lengths])) == [lengths] and steps(cases) == [(3,)]


def test_without_a_culprit_the_kind_tells() -> None:
    cases = [case(stale("slots"))]
    assert merge(cases, AT, Kind.FROZEN, Diagnosis()) is None and steps(cases) == [(3, 5)]
    assert merge(cases, AT, Kind.DIFFERS, Diagnosis()) == [] and steps(cases) == [(3, 5)]


def test_what_could_not_be_named_at_first_is_named_later() -> None:
    cases = [case()]
    assert merge(cases, AT, Kind.FROZEN, Diagnosis([stale("slots")])) is None
    assert steps(cases) == [(3, 5)] and cases[0].diagnosis.culprits[0].name == "slots" and cases[0].at.step == 3
