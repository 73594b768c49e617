"""Names that do not exist are refused, with those that do."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cudagraph_doctor.errors import TargetError, UsageError
from cudagraph_doctor.given_names import check_tolerances, reserved_rows
from cudagraph_doctor.walk import Walk, walk

CACHES = Walk({"attn.k_cache": torch.zeros(65, 8), "attn.v_cache": torch.zeros(65, 8), "count": torch.zeros(())})


def test_names_that_exist() -> None:
    check_tolerances(["", "logits"], ["logits", "tokens"])
    check_tolerances([""], [""])
    assert reserved_rows({}, CACHES) == []
    keys, values = CACHES.tensors["attn.k_cache"], CACHES.tensors["attn.v_cache"]
    found = reserved_rows({"attn.k_cache": [64, 0], "attn.v_cache": torch.tensor([64])}, CACHES)
    assert [(tensor is keys, tensor is values, rows) for tensor, rows in found] == [
        (True, False, [64, 0]),
        (False, True, [64]),
    ]


def test_any_path_that_leads_to_the_tensor_may_be_used() -> None:
    layers = [{"k": torch.zeros(4)}, {"k": torch.zeros(4)}]
    engine = {"kv": [layer["k"] for layer in layers], "model": {"layers": {"all": layers}}, "layers": layers}
    around = walk({"engine": engine})
    assert "engine.model.layers.all[1].k" not in around.tensors, "a longer path than the one that names it"
    for name in ("engine.kv[1]", "engine.layers[1].k", "engine.model.layers.all[1].k"):
        [(tensor, rows)] = reserved_rows({name: [3]}, around)
        assert tensor is layers[1]["k"] and rows == [3]


@pytest.mark.parametrize(
    ("name", "outputs", "said"),
    [
        ("logit", ["logits", "tokens"], ['the output "logit"', 'Did you mean "logits"?', "it puts out logits, tokens"]),
        ("x", [""], ["it puts out one output without a name", "--rtol 0.01"]),
        ("x", [f"[{i}]" for i in range(20)], ["[11] and 8 more"]),
    ],
)
def test_an_output_that_there_is_not(name: str, outputs: list[str], said: list[str]) -> None:
    with pytest.raises(UsageError) as refused:
        check_tolerances(["", name], outputs)
    assert all(part in str(refused.value) for part in said), refused.value


@pytest.mark.parametrize(
    ("reserved", "said"),
    [
        ({"attn.k_cash": [64]}, ['"attn.k_cash"', 'Did you mean "attn.k_cache"', "tensors are attn.k_cache, "]),
        ({"attn.k_cache": [64, 65]}, ["the row 65", "its shape is (65, 8), so its rows are 0 to 64"]),
        ({"attn.k_cache": [-1]}, ["the row -1"]),
        ({"attn.k_cache": ["last"]}, ["no list of row numbers", "['last']", '{"attn.k_cache": [64]}']),
        ({"attn.k_cache": 64}, ["no list of row numbers"]),
        ({"count": [0]}, ["the row 0", "its shape is ()"]),
    ],
)
def test_what_is_not_there_to_be_reserved(reserved: Any, said: list[str]) -> None:
    with pytest.raises(TargetError) as refused:
        reserved_rows(reserved, CACHES)
    assert all(part in str(refused.value) for part in said), refused.value
