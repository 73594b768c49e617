"""Hits, padding and time of a workload, against numbers worked out by hand."""

from __future__ import annotations

import pytest

from cudagraph_doctor.audit.costs import CostTable, KeyCost, Modelled
from cudagraph_doctor.audit.keys import KeySet
from cudagraph_doctor.audit.traffic import meet

COSTS = Modelled(base_ms=1.0, row_ms=0.5, launch_ms=10.0)


def test_by_hand() -> None:
    # 4 steps of 1 row in key 2, 2 steps of 2 rows in key 2, 1 step of 3 rows in key 4, 3 steps of 5 rows without a key.
    found = meet({1: 4.0, 2: 2.0, 3: 1.0, 5: 3.0}, KeySet("decode", (2, 4), 5), COSTS)
    assert found.steps == 10
    assert found.hit_rate == pytest.approx(0.7)
    assert found.eager_share == pytest.approx(0.3)
    assert found.padding_share == pytest.approx((4 * 1 + 1 * 1) / (6 * 2 + 1 * 4))
    assert found.ms == pytest.approx(6 * 2.0 + 1 * 3.0 + 3 * 10.0)
    assert found.padding_ms == pytest.approx(4 * 0.5 + 1 * 0.5)
    assert found.eager_ms == pytest.approx(30.0)
    assert found.eager_extra_ms == pytest.approx(3 * (10 - 3.5))


def test_a_padded_replay_takes_its_own_time() -> None:
    costs = CostTable((KeyCost(1, 1.0), KeyCost(4, 4.0, padded_rows=2, padded_ms=3.0)))
    found = meet({3: 1.0}, KeySet("decode", (4,), 4), costs)
    assert found.ms == 3.5


def test_piecewise_is_a_hit_only_if_it_is_meant() -> None:
    assert meet({3: 1.0}, KeySet("decode", (2,), 4, piecewise=(4,)), COSTS).hit_rate == 0
    meant = meet({3: 1.0}, KeySet("decode", (), 4, piecewise=(4,)), COSTS)
    assert (meant.hit_rate, meant.padding_share) == (1, 0.25)


def test_nothing_replayed() -> None:
    found = meet({3: 1.0}, KeySet("decode", (), 4), COSTS)
    assert (found.hit_rate, found.padding_share) == (0, None)
    assert meet({}, KeySet("decode", (1,), 4), COSTS).hit_rate == 0
