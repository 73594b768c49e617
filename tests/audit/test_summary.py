"""The sentence and the numbers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from cudagraph_doctor.audit import summary
from cudagraph_doctor.audit.costs import CostTable, KeyCost
from cudagraph_doctor.audit.keys import Configuration, KeySet

if TYPE_CHECKING:
    from tests.audit.conftest import MakeAudit

TABLE = CostTable(
    tuple(KeyCost(n, float(n), 9.0, graph_bytes=100 * n, pool_bytes=10 * n, capture_ms=2.0) for n in (1, 2, 4)),
    kv_bytes_per_token=20,
)


@pytest.mark.parametrize(
    ("keys", "steps", "said"),
    [
        (KeySet("decode", (1, 4), 4), None, "Every batch of up to 4 requests has a graph."),
        (KeySet("decode", (1, 4), 5), None, "1 of 5 batch sizes has no graph (5 requests)."),
        (KeySet("decode", (1,), 3), None, "2 of 3 batch sizes have no graph (2 and 3 requests)."),
        (
            KeySet("decode", (1,), 3, piecewise=(4,)),
            None,
            "2 of 3 batch sizes run piecewise only (2 and 3 requests).",
        ),
        (
            KeySet("decode", (1, 4), 4),
            {3: 1.0},
            "Every batch of up to 4 requests has a graph; under the workload 100.0% of the steps hit, 25.0% of the "
            "replayed rows are padding.",
        ),
    ],
)
def test_sentence(keys: KeySet, steps: dict[int, float] | None, said: str, audit: MakeAudit) -> None:
    assert summary.sentence(audit(keys, steps=steps)) == said


def test_sentence_of_several_sets_and_of_graphs_turned_off(audit: MakeAudit) -> None:
    two = (KeySet("verify", (4,), 4), KeySet("draft", (2,), 4))
    assert summary.sentence(audit(*two)).startswith(
        "verify: Every batch of up to 4 requests has a graph. draft: 2 of 4"
    )
    off = Configuration("f", "vllm", (KeySet("decode", (1,), 4),), turned_off="enforce_eager")
    assert summary.sentence(audit(more=off)) == "Graphs are turned off (enforce_eager): every step runs eager."


def test_numbers(audit: MakeAudit) -> None:
    told = summary.summarize(audit(KeySet("decode", (1, 2, 4), 5), steps={1: 1.0, 3: 2.0, 5: 1.0}, costs=TABLE))
    json.dumps(told, allow_nan=False)
    [one] = told["configurations"][0]["sets"]
    assert one["uncovered"] == {"above the largest key": "5"}
    assert one["traffic"]["hit_rate"] == 0.75 and one["traffic"]["eager_share"] == 0.25
    assert [(row["key"], row["serves"], row["share"]) for row in one["table"]] == [
        (1, "1", 0.25),
        (2, "", 0.0),
        (4, "3", 0.5),
    ]
    assert one["memory"] == {
        "graph_bytes": 700,
        "one_pool_bytes": 40,
        "own_pools_bytes": 70,
        "total_bytes": 740,
        "kv_tokens": 37,
    }
    assert one["capture_ms"] == 6.0
    assert one["better"]["keys"] == [1, 3, 5] and one["curve"][0]["graphs"] == 1


def test_what_is_not_known_is_none(audit: MakeAudit) -> None:
    [one] = summary.summarize(audit(KeySet("decode", (1, 4), 4, padded=False), steps={3: 1.0}))["configurations"][0][
        "sets"
    ]
    assert one["memory"] is one["capture_ms"] is one["better"] is one["traffic"]["padding_share"] is None
