"""The best list against every list there is, on small random problems."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator

import pytest

from cudagraph_doctor.audit import best
from cudagraph_doctor.audit.costs import Costs, CostTable, KeyCost, Modelled


def all_lists(candidates: list[int]) -> Iterator[tuple[int, ...]]:
    *others, largest = candidates
    for count in range(len(others) + 1):
        for some in itertools.combinations(others, count):
            yield (*some, largest)


def problem(seed: int) -> tuple[dict[int, float], int, CostTable, random.Random]:
    """Sizes with weights, the largest, and costs that follow no rule: larger keys may be cheaper."""
    draw = random.Random(seed)
    sizes = sorted(draw.sample(range(1, 30), draw.randint(1, 8)))
    steps = {size: draw.random() * 10 for size in sizes}
    largest = sizes[-1] + draw.randint(0, 3)
    rows = [
        KeyCost(size, draw.random() * 5, 9.0, 1 if size > 1 else None, draw.random(), graph_bytes=draw.randint(1, 9))
        for size in sorted({*sizes, largest})
    ]
    return steps, largest, CostTable(tuple(rows)), draw


@pytest.mark.parametrize("seed", range(60))
def test_for_k_graphs(seed: int) -> None:
    steps, largest, costs, draw = problem(seed)
    most = draw.randint(1, 6)
    lists = best.curve(steps, largest, most, costs)
    cheapest = min(best.cost_ms(keys, steps, costs) for keys in all_lists(list(costs.sizes)) if len(keys) <= most)
    assert lists[-1].cost_ms == pytest.approx(cheapest)
    for one in lists:
        assert one.cost_ms == pytest.approx(best.cost_ms(one.keys, steps, costs))
        assert one.keys[-1] == largest
    assert [one.cost_ms for one in lists] == sorted((one.cost_ms for one in lists), reverse=True)


@pytest.mark.parametrize("seed", range(60))
def test_within_a_budget(seed: int) -> None:
    steps, largest, costs, draw = problem(seed)
    budget = draw.randint(1, 25)
    fitting = [k for k in all_lists(list(costs.sizes)) if sum(costs.graph_bytes(key) or 0 for key in k) <= budget]
    found = best.within(steps, largest, budget, costs)
    assert (found is None) == (not fitting)
    if found is not None:
        assert found.exact and found.keys in fitting
        assert found.cost_ms == pytest.approx(min(best.cost_ms(keys, steps, costs) for keys in fitting))


@pytest.mark.parametrize("seed", range(20))
def test_a_budget_that_is_counted_coarsely_is_kept(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(best, "_CELLS", 0)
    steps, largest, costs, draw = problem(seed)
    large = CostTable(
        tuple(KeyCost(k.size, k.replay_ms, graph_bytes=10_007 * (k.graph_bytes or 1)) for k in costs.keys)
    )
    budget = draw.randint(10_007, 25 * 10_007)
    found = best.within(steps, largest, budget, large)
    fitting = [k for k in all_lists(list(costs.sizes)) if sum(large.graph_bytes(key) or 0 for key in k) <= budget]
    if found is None:
        return
    assert found.keys in fitting
    assert found.cost_ms <= 1.2 * min(best.cost_ms(keys, steps, large) for keys in fitting)


def test_the_pool_counts_once() -> None:
    costs = CostTable((KeyCost(1, 1.0, graph_bytes=1, pool_bytes=50), KeyCost(2, 2.0, graph_bytes=1, pool_bytes=100)))
    steps = {1: 1.0, 2: 1.0}
    assert best.within(steps, 2, 100, costs) is None
    one, two = best.within(steps, 2, 101, costs), best.within(steps, 2, 102, costs)
    assert one and one.keys == (2,)
    assert two and two.keys == (1, 2)


def test_a_budget_without_known_memory() -> None:
    with pytest.raises(ValueError, match="not known"):
        best.within({1: 1.0}, 1, 100, Modelled())


def test_multiples_of_tokens_a_request() -> None:
    lists = best.curve({3: 5.0, 6: 1.0, 9: 5.0}, 12, 3, Modelled(0.0, 1.0), multiple=3)
    assert lists[-1].keys == (3, 9, 12)
    assert all(key % 3 == 0 for one in lists for key in one.keys)


def test_an_equal_number_on_a_known_optimum() -> None:
    # Uniform sizes and linear costs: the best three keys are evenly spaced.
    assert best.curve(dict.fromkeys(range(1, 13), 1.0), 12, 3, Modelled(0.0, 1.0))[-1].keys == (4, 8, 12)


@pytest.mark.parametrize("costs", [Modelled(), CostTable((KeyCost(1, 1.0), KeyCost(1024, 11.0)))])
def test_a_thousand_sizes_are_soon_done(costs: Costs) -> None:
    # 2 s are allowed on one core; ten times that here, for a machine under load.
    started = time.perf_counter()
    lists = best.curve({size: 1.0 + size % 7 for size in range(1, 1025)}, 1024, 64, costs)
    assert len(lists) == 64
    assert time.perf_counter() - started < 20


def test_more_sizes_than_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = {size: 1.0 + size % 5 for size in range(1, 400)}
    exact = best.curve(steps, 400, 8, Modelled(0.0, 1.0))[-1]
    monkeypatch.setattr(best, "_CANDIDATES", 64)
    near = best.curve(steps, 400, 8, Modelled(0.0, 1.0))[-1]
    assert exact.exact and not near.exact
    assert near.keys[-1] == 400
    assert exact.cost_ms <= near.cost_ms <= 1.05 * exact.cost_ms
