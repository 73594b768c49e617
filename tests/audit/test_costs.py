"""Tables of costs and the model: numbers between sizes, JSON both ways, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cudagraph_doctor.audit.costs import CostTable, KeyCost, Line, Modelled, load
from cudagraph_doctor.errors import UsageError

TABLE = CostTable(
    (
        KeyCost(2, 1.0, 4.0, graph_bytes=100, pool_bytes=10, capture_ms=5.0, instantiate_ms=1.0),
        KeyCost(4, 2.0, 5.0, 3, 1.5, 6.0, 1.0, 40, 200, 20),
        KeyCost(8, 6.0, 8.0, graph_bytes=401, pool_bytes=40, capture_ms=9.0),
    ),
    "a test",
    kv_bytes_per_token=7,
)


def test_measured_sizes_are_themselves() -> None:
    assert [TABLE.replay(size).at(size) for size in TABLE.sizes] == [1.0, 2.0, 6.0]
    assert [TABLE.eager_ms(size) for size in TABLE.sizes] == [4.0, 5.0, 8.0]
    assert TABLE.graph_bytes(4) == 200 and TABLE.pool_bytes(8) == 40 and TABLE.capture_ms(2) == 6.0


def test_between_and_beyond() -> None:
    assert TABLE.replay(6).at(6) == 4.0
    assert TABLE.eager_ms(10) == 9.5
    assert TABLE.graph_bytes(6) == 301, "rounded up"
    assert TABLE.replay(1).at(1) == 0.5


def test_a_padded_replay() -> None:
    assert TABLE.replay(4) == Line(0.0, 0.5)
    assert TABLE.replay(4).at(3) == 1.5


def test_a_replay_that_gets_no_slower_with_rows() -> None:
    odd = CostTable((KeyCost(4, 2.0, padded_rows=1, padded_ms=2.5),))
    assert odd.replay(4) == Line(2.0, 0.0)
    assert odd.eager_ms(3) == 2.0, "without eager times: as slow as a replay"
    assert odd.graph_bytes(4) is None and odd.capture_ms(4) is None


def test_json_both_ways() -> None:
    assert CostTable.from_json(json.loads(json.dumps(TABLE.to_json()))) == TABLE


def test_the_model() -> None:
    model = Modelled(1.0, 0.1, 4.0)
    assert model.replay(10).at(3) == 2.0
    assert (model.eager_ms(10), model.eager_ms(50)) == (4.0, 6.0)
    assert model.graph_bytes(1) is model.pool_bytes(1) is model.capture_ms(1) is None
    assert not model.measured and "1 ms + 0.1 ms a row" in model.origin


@pytest.mark.parametrize(
    "data",
    [
        [],
        {},
        {"keys": []},
        {"keys": [{"size": 4}]},
        {"keys": [{"size": 0, "replay_ms": 1}]},
        {"keys": [{"size": 2.5, "replay_ms": 1}]},
        {"keys": [{"size": 4, "replay_ms": -1}]},
        {"keys": [{"size": 4, "replay_ms": "1"}]},
        {"keys": [{"size": 4, "replay_ms": float("nan")}]},
        {"keys": [{"size": 4, "replay_ms": 1, "graph_bytes": 1.5}]},
        {"keys": [{"size": 4, "replay_ms": 1}, {"size": 4, "replay_ms": 2}]},
        {"keys": [{"size": 4, "replay_ms": 1, "speed": 2}]},
        {"keys": [{"size": 4, "replay_ms": 1}], "schema_version": 99},
        {"keys": 4},
    ],
)
def test_no_table(data: Any, tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    file.write_text(json.dumps(data))
    with pytest.raises(UsageError, match="is no table of costs"):
        load(file)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        load(tmp_path / "none.json")
    (tmp_path / "c.json").write_text("{")
    with pytest.raises(UsageError, match="is no table of costs"):
        load(tmp_path / "c.json")
