"""A configuration judged: doubts about assumed rules, better lists, ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cudagraph_doctor.audit.costs import CostTable, KeyCost, Modelled
from cudagraph_doctor.audit.coverage import Kind
from cudagraph_doctor.audit.job import Demands
from cudagraph_doctor.audit.judged import judge
from cudagraph_doctor.audit.keys import Configuration, KeySet, Unit
from cudagraph_doctor.audit.workload import assumed
from cudagraph_doctor.errors import Inconclusive, UsageError

if TYPE_CHECKING:
    from tests.audit.conftest import MakeAudit

NEW = Configuration("f", "vllm", (KeySet("decode", (1, 2, 4), 4),), "new", True)
OLD = Configuration("f", "vllm", (KeySet("decode", (1, 2), 4),), "old", True)


def test_a_gap_that_other_versions_do_not_have_is_doubtful() -> None:
    found = judge([(OLD, [NEW])], assumed(4), Modelled(), Demands())
    assert found.judged[0].sets[0].doubtful == {Kind.ABOVE}
    assert judge([(OLD, [OLD])], assumed(4), Modelled(), Demands()).judged[0].sets[0].doubtful == set()


def test_a_gap_that_only_other_versions_have_is_told() -> None:
    found = judge([(NEW, [OLD])], assumed(4), Modelled(), Demands())
    assert found.judged[0].elsewhere == ("under old 3 and 4 requests run eager",)


def test_equal_ranks_are_judged_once() -> None:
    found = judge([(NEW, ()), (NEW, ()), (OLD, ())], assumed(4), Modelled(), Demands())
    assert [one.rank for one in found.judged] == [0, 2]
    assert [apart.ranks for apart in found.disagreements] == [((2, (4,)),)]


def test_the_better_list_has_as_many_keys_or_as_asked(audit: MakeAudit) -> None:
    keys = KeySet("decode", (1, 2, 4, 8), 8)
    steps = dict.fromkeys(range(1, 9), 1.0)
    costs = Modelled(0.0, 1.0)
    for graphs, expected in ((None, (2, 4, 6, 8)), (2, (4, 8)), (8, tuple(range(1, 9)))):
        better = audit(keys, steps=steps, costs=costs, graphs=graphs).judged[0].sets[0].better
        assert better is not None and better.keys == expected


def test_within_memory(audit: MakeAudit) -> None:
    keys = KeySet("decode", (1, 2), 2)
    costs = CostTable((KeyCost(1, 1.0, graph_bytes=10), KeyCost(2, 2.0, graph_bytes=10)))
    better = audit(keys, steps={1: 1.0, 2: 1.0}, costs=costs, graph_memory=19).judged[0].sets[0].better
    assert better is not None and better.keys == (2,)
    with pytest.raises(Inconclusive, match="No list fits the budget"):
        audit(keys, steps={1: 1.0}, costs=costs, graph_memory=9)
    with pytest.raises(UsageError, match="tell no memory of keys"):
        audit(keys, steps={1: 1.0}, graph_memory=9)


def test_speculative_lists_are_whole_requests(audit: MakeAudit) -> None:
    keys = KeySet("verify", (3, 12), 4, Unit.TOKENS, 3, uniform=True)
    better = audit(keys, steps={1: 1.0, 3: 9.0}, costs=Modelled(0.0, 1.0)).judged[0].sets[0].better
    assert better is not None and better.keys == (9, 12)


@pytest.mark.parametrize("keys", [KeySet("decode", (1, 4), 4, padded=False), KeySet("decode", (), 4)])
def test_no_better_list_where_nothing_is_padded_or_captured(keys: KeySet, audit: MakeAudit) -> None:
    assert audit(keys, steps={3: 1.0}).judged[0].sets[0].better is None


def test_no_better_list_where_all_traffic_is_above_the_most(audit: MakeAudit) -> None:
    assert audit(KeySet("decode", (1, 4), 4), steps={9: 1.0}).judged[0].sets[0].better is None


def test_turned_off_is_no_gap(audit: MakeAudit) -> None:
    off = Configuration("f", "vllm", (KeySet("decode", (1, 2), 4),), turned_off="enforce_eager")
    [one] = audit(more=off, steps={1: 1.0}).judged[0].sets
    assert one.gaps == () and one.traffic.hit_rate == 0
