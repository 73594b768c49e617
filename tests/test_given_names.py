"""Names that do not exist are refused, with those that do."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cudagraph_doctor.errors import TargetError, UsageError
from cudagraph_doctor.given_names import check_reserved, check_tolerances

CACHES = {"attn.k_cache": torch.zeros(65, 8), "attn.v_cache": torch.zeros(65, 8), "count": torch.zeros(())}


def test_names_that_exist() -> None:
    check_tolerances(["", "logits"], ["logits", "tokens"])
    check_tolerances([""], [""])
    check_reserved({}, CACHES)
    check_reserved({"attn.k_cache": [64, 0], "attn.v_cache": torch.tensor([64])}, CACHES)


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
        check_reserved(reserved, CACHES)
    assert all(part in str(refused.value) for part in said), refused.value
