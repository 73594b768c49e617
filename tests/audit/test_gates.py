"""Demands: met, missed, and those that cannot be answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cudagraph_doctor.audit import gates
from cudagraph_doctor.audit.costs import CostTable, KeyCost
from cudagraph_doctor.audit.keys import KeySet

if TYPE_CHECKING:
    from tests.audit.conftest import MakeAudit

KEYS = KeySet("decode", (2, 4), 8)
COSTS = CostTable((KeyCost(2, 1.0, graph_bytes=100, pool_bytes=50), KeyCost(4, 2.0, graph_bytes=100, pool_bytes=60)))


def met(audit: MakeAudit, *sets: KeySet, steps: dict[int, float] | None = None, **demands: float) -> list[bool | None]:
    return [gate.met for gate in gates.check(audit(*(sets or (KEYS,)), steps=steps, costs=COSTS, **demands))]


def test_none_asked(audit: MakeAudit) -> None:
    assert met(audit) == []


@pytest.mark.parametrize(("wanted", "answer"), [(0.75, True), (0.76, False)])
def test_hit_rate(wanted: float, answer: bool, audit: MakeAudit) -> None:
    assert met(audit, steps={2: 2.0, 3: 1.0, 5: 1.0}, min_hit_rate=wanted) == [answer]


@pytest.mark.parametrize(("allowed", "answer"), [(0.125, True), (0.12, False)])
def test_padding(allowed: float, answer: bool, audit: MakeAudit) -> None:
    assert met(audit, steps={2: 2.0, 3: 1.0}, max_padding=allowed) == [answer]


@pytest.mark.parametrize(("allowed", "answer"), [(260, True), (259, False)])
def test_memory(allowed: int, answer: bool, audit: MakeAudit) -> None:
    assert met(audit, steps={2: 1.0}, max_graph_memory=allowed) == [answer]


def test_the_worst_set_counts(audit: MakeAudit) -> None:
    two = (KeySet("verify", (8,), 8), KeySet("draft", (2,), 8))
    assert met(audit, *two, steps={2: 1.0, 8: 1.0}, min_hit_rate=0.9, max_padding=0.2) == [False, False]
    told = gates.check(audit(*two, steps={2: 1.0, 8: 1.0}, min_hit_rate=0.9))[0].message
    assert told == "the hit rate is 50.0% in draft steps, demanded are 90.0%"


def test_without_a_workload_there_is_no_answer(audit: MakeAudit) -> None:
    found = gates.check(audit(KEYS, min_hit_rate=0.1, max_padding=1.0))
    assert [gate.met for gate in found] == [None, None]
    assert "there is no workload" in found[0].message and "--workload" in found[0].fix


def test_without_replays_padding_has_no_answer(audit: MakeAudit) -> None:
    assert met(audit, steps={7: 1.0}, max_padding=0.5) == [None]


def test_without_known_memory_there_is_no_answer(audit: MakeAudit) -> None:
    [gate] = gates.check(audit(KEYS, steps={2: 1.0}, max_graph_memory=10))
    assert gate.met is None and "--costs" in gate.fix
