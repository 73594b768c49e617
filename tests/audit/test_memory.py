"""Bytes of a list, with one pool and with a pool each."""

from __future__ import annotations

from cudagraph_doctor.audit import memory
from cudagraph_doctor.audit.costs import CostTable, KeyCost, Modelled
from cudagraph_doctor.audit.keys import KeySet

COSTS = CostTable((KeyCost(1, 1.0, graph_bytes=10, pool_bytes=100), KeyCost(2, 1.0, graph_bytes=20, pool_bytes=200)))


def test_one_pool_against_a_pool_each() -> None:
    found = memory.of((2, 1), COSTS)
    assert found is not None
    assert (found.graphs, found.one_pool, found.own_pools, found.total) == (30, 200, 300, 230)


def test_a_graph_for_each_number_of_adapters() -> None:
    assert memory.copies(KeySet("decode", (1,), 1, adapters=(0, 1, 2))) == 3
    found = memory.of((1, 2), COSTS, 3)
    assert found is not None and (found.graphs, found.one_pool) == (90, 200)


def test_not_known() -> None:
    assert memory.of((1,), Modelled()) is None
    assert memory.of((), Modelled()) is not None, "no graphs take no memory"
