"""Steps at which the same fault was seen are one case."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from cudagraph_doctor.findings import Location
from cudagraph_doctor.graph.model import Origin
from cudagraph_doctor.proof.cases import Case, merge, one_fault_each
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


def output(key: str) -> Remedy:
    return Remedy(Cause.OVERWRITTEN, f"captured[{key}].logits", "output")


def test_the_same_place_in_graphs_of_other_keys_is_the_same_fault() -> None:
    first, cases = Planned(3, 3, 2, (4, "even")), list[Case]()
    for number, key in enumerate([(4, "even"), (8, "odd"), (8, "odd"), (1, "odd")]):
        at, found = replace(first, index=number, key=key), Diagnosis([output(str(key))])
        if merge(cases, at, Kind.DIFFERS, found) is not None:
            cases.append(replace(case(kind=Kind.DIFFERS), at=at, diagnosis=found, steps=(at.step,)))
    (known,) = cases
    (fault,) = one_fault_each(known.diagnosis.culprits)
    others = [f"`captured[{key}].logits` in graph {key}" for key in ("(8, 'odd')", "(1, 'odd')")]
    assert known.also_in(fault) == others and len(known.steps) == 4


def test_two_places_in_one_graph_are_two_faults() -> None:
    cases, other = [case(stale("inputs[0]"))], stale("inputs[1]")
    assert merge(cases, AT, Kind.FROZEN, Diagnosis([other])) == [other]


@pytest.mark.parametrize(("line", "merged"), [(7, True), (8, False)])
def test_kernels_of_other_sizes_that_one_line_launches_are_one_fault(line: int, merged: bool) -> None:
    def baked(kernel: str, at: int) -> Diagnosis:
        return Diagnosis([Remedy(Cause.BAKED, kernel, "parameter")], launched=Origin(Location("serve.py", at)))

    known = replace(case(), diagnosis=baked("small, parameter 1", 7))
    cases, wide = [known], baked("wide, parameter 1", line)
    left = merge(cases, replace(AT, key=16), Kind.FROZEN, wide)
    assert left == (None if merged else wide.culprits)
    told = cases[0].also_in((Cause.BAKED.value, "small, parameter 1"))
    assert told == (["`wide, parameter 1` in graph 16"] if merged else [])


def test_what_nobody_could_be_accused_of_is_told_with_its_graphs() -> None:
    cases = [case()]
    assert merge(cases, replace(AT, key=16), Kind.FROZEN, Diagnosis()) is None
    assert cases[0].also_in() == ["graph 16"]


def test_a_graph_that_serves_several_keys_is_told_once() -> None:
    known = case()
    at = replace(known.at, index=5, step=5, key=3)
    for other, told in ((0, []), (1, ["graph 3"])):
        cases = [known]
        graphs = {known.at.index: frozenset({0}), at.index: frozenset({other})}
        assert merge(cases, at, Kind.FROZEN, Diagnosis(), graphs) is None
        assert cases[0].also_in() == told and steps(cases) == [(3, 5)]


def test_what_is_wrong_besides_is_told_where_it_is_met_first() -> None:
    cases, beside = [case()], Diagnosis(beside=[stale("bias", Cause.REBOUND)])
    assert merge(cases, AT, Kind.FROZEN, beside) == []
    cases.append(replace(case(), diagnosis=beside))
    assert merge(cases, replace(AT, step=6), Kind.FROZEN, beside) is None
    assert steps(cases) == [(3,), (3, 6)]
