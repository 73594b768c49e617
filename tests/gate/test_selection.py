"""Which findings count: the longest prefix wins, then the nearest place."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from cudagraph_doctor.findings import Accepted, Finding, Report, Status
from cudagraph_doctor.gate.selection import (
    COMMAND_LINE,
    PYPROJECT,
    TARGET,
    Entry,
    Selection,
    prefixes,
    reasoned,
)


def select(prefix: str, where: str = COMMAND_LINE) -> Entry:
    return Entry(prefix, where, ignores=False)


def ignore(prefix: str, where: str = COMMAND_LINE, reason: str = "") -> Entry:
    return Entry(prefix, where, ignores=True, reason=reason)


@pytest.mark.parametrize(
    ("entries", "counts"),
    [
        ([], True),
        ([select("CGD1")], True),
        ([select("CGD2")], False),
        ([ignore("CGD1")], False),
        ([ignore("CGD2")], True),
        ([select("CGD1"), ignore("CGD10")], False),
        ([select("CGD101"), ignore("CGD1")], True),
        ([ignore("CGD1"), select("CGD101")], True),
        ([select("CGD1"), ignore("CGD1")], False),
        ([select("CGD101"), ignore("CGD101", PYPROJECT)], True),
        ([select("CGD1"), ignore("CGD101", TARGET)], False),
        ([select("CGD101", PYPROJECT), ignore("CGD101", TARGET)], True),
        ([select("CGD101", PYPROJECT), ignore("CGD101")], False),
    ],
)
def test_the_longest_prefix_decides_then_the_nearest_place(entries: list[Entry], counts: bool) -> None:
    assert (Selection(tuple(entries)).why_not("CGD101") is None) is counts
    assert (Selection(tuple(entries[::-1])).why_not("CGD101") is None) is counts


def test_why_it_does_not_count() -> None:
    assert Selection((ignore("CGD1", TARGET, "only logged"),)).why_not("CGD101") == Accepted(
        "ignored", TARGET, "only logged"
    )
    assert Selection((select("CGD2", PYPROJECT),)).why_not("CGD101") == Accepted("not selected", PYPROJECT)


def test_prefixes() -> None:
    assert prefixes(["CGD1,cgd201", " CGD4 ", "CGD1"]) == ("CGD1", "CGD201", "CGD4")
    assert prefixes([]) == ()


@pytest.mark.parametrize("text", ["", "CGD1,", "CGD9", "frozen-in-graph", "101"])
def test_a_prefix_of_nothing_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no rule's code begins with"):
        prefixes([text])


def test_reasoned() -> None:
    assert reasoned({"cgd217": " only\nlogged "}, TARGET) == (ignore("CGD217", TARGET, "only logged"),)
    assert reasoned({}, TARGET) == ()


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (["CGD217"], "a list, not a table"),
        ("CGD217", "a str, not a table"),
        ({"CGD217": ""}, '"CGD217" has no reason'),
        ({"CGD217": True}, '"CGD217" has no reason'),
        ({"CGD9": "x"}, "no rule's code begins with"),
        ({"CGD1,CGD2": "x"}, "no rule's code begins with"),
        ({217: "x"}, "no rule's code begins with"),
    ],
)
def test_ignores_without_a_reason_are_refused(table: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        reasoned(table, TARGET)


def unused(report: Report, *entries: Entry) -> list[str]:
    return list(Selection(entries).unused(report))


def test_unused_ignores_are_told(ran: Callable[..., Report], fault: Callable[..., Finding]) -> None:
    report = ran(fault("CGD101"))
    assert unused(report, ignore("CGD102", PYPROJECT, "old"), ignore("CGD101"), select("CGD107")) == [
        "the ignore of CGD102 in the pyproject.toml (old): this run found nothing that it names"
    ]


def test_an_ignore_of_what_was_not_looked_for_is_not_unused(ran: Callable[..., Report]) -> None:
    assert unused(ran(), ignore("CGD2")) == []
    assert unused(ran(), ignore("CGD1")) == []  # of CGD1 this run evaluated a part
    assert unused(ran(status=Status.INCONCLUSIVE), ignore("CGD102")) == []
    assert len(unused(ran(), ignore("CGD102"))) == 1


def test_an_accepted_finding_still_uses_the_ignore(ran: Callable[..., Report], fault: Callable[..., Finding]) -> None:
    accepted = dataclasses.replace(fault("CGD101"), accepted=Accepted("ignored", TARGET, "x"))
    assert unused(ran(accepted), ignore("CGD101")) == []
