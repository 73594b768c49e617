"""Was enough looked at: shares, and an older run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from cudagraph_doctor.findings import Report, Status
from cudagraph_doctor.gate.coverage import less_than_before, too_little

Ran = Callable[..., Report]


@pytest.mark.parametrize(("coverage", "enough"), [(1.0, True), (0.9, True), (0.89, False), (0.0, False), (None, True)])
def test_min_coverage(ran: Ran, coverage: float | None, enough: bool) -> None:
    said = list(too_little(ran(coverage=coverage), 0.9))
    assert (said == []) is enough


def test_what_is_said(ran: Ran) -> None:
    assert list(too_little(ran(coverage=0.5), 0.9)) == ["diff: 50.0% could be judged, demanded are 90.0%"]


def test_a_check_that_says_itself_that_it_is_inconclusive_is_not_told_twice(ran: Ran) -> None:
    assert list(too_little(ran(coverage=0.0, status=Status.INCONCLUSIVE), 0.9)) == []


def test_less_than_before(ran: Ran) -> None:
    old = ran(coverage=1.0, steps=8)
    assert list(less_than_before(ran(coverage=0.995, steps=8), old, 0.01)) == []
    assert list(less_than_before(ran(coverage=0.5, steps=1, rules=("CGD101",)), old, 0.01)) == [
        "diff: 50.0% could be judged, it was 100.0%",
        "diff: 1 steps were played, it was 8",
        "diff: 1 keys were looked at, it was 2",
        "diff: 1 rules were evaluated, it was 3",
    ]


def test_the_threshold_is_for_counts_as_well(ran: Ran) -> None:
    old = ran(steps=100)
    assert list(less_than_before(ran(steps=90), old, 0.1)) == []
    assert len(list(less_than_before(ran(steps=89), old, 0.1))) == 1


def test_more_than_before_is_fine(ran: Ran) -> None:
    assert list(less_than_before(ran(steps=9), ran(coverage=0.5, steps=8), 0.0)) == []


def test_other_checks_and_unfinished_ones_are_not_compared(ran: Ran) -> None:
    less = ran(coverage=0.1, steps=1)
    assert list(less_than_before(less, ran(check="capture"), 0.0)) == []
    assert list(less_than_before(less, ran(status=Status.ERRORED), 0.0)) == []
    assert list(less_than_before(less, ran(coverage=None, steps=1), 0.0)) == []


def test_the_steps_of_a_trace_are_traffic(ran: Ran) -> None:
    now = dataclasses.replace(ran(steps=1), target={"spec": "monday.sqlite"})
    assert list(less_than_before(now, ran(steps=8), 0.0)) == []
