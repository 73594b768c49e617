"""Values of `audit`'s options as people write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudagraph_doctor.audit import emit as emitters
from cudagraph_doctor.audit.costs import Modelled
from cudagraph_doctor.audit_values import EMITS, Emit, at_least_one, cost_model, emit, in_bytes, rank_lists, rate


def test_lists_of_ranks() -> None:
    assert rank_lists(None) == ()
    assert rank_lists("4,2,2") == ((4, 2, 2),)
    assert rank_lists("1,2/1,4") == ((1, 2), (1, 4))
    with pytest.raises(ValueError, match="is no list of integers"):
        rank_lists("1,2/")


@pytest.mark.parametrize(
    ("text", "count"),
    [("4096", 4096), ("1k", 1024), ("512MiB", 512 << 20), ("1.5 GB", 3 << 29), ("2g", 2 << 30), (None, None)],
)
def test_bytes(text: str | None, count: int | None) -> None:
    assert in_bytes(text) == count


@pytest.mark.parametrize("text", ["", "x", "-1", "1T", "1.5.2", "MiB"])
def test_no_bytes(text: str) -> None:
    with pytest.raises(ValueError, match="is no amount of memory"):
        in_bytes(text)


def test_numbers_that_end() -> None:
    assert (rate(None), rate(0.5), at_least_one(1.0)) == (None, 0.5, 1.0)
    for value in (0.0, -1.0, float("nan"), float("inf"), 1e9):
        with pytest.raises(ValueError, match="is no number of requests a second"):
            rate(value)
    for value in (0.5, float("nan"), float("inf"), 1e9):
        with pytest.raises(ValueError, match="is no number from 1 to"):
            at_least_one(value)


def test_cost_model() -> None:
    assert cost_model(None) == Modelled()
    assert cost_model("base=2, eager=9") == Modelled(2.0, Modelled().row_ms, 9.0)


@pytest.mark.parametrize("text", ["base", "base=x", "base=-1", "speed=1", "base=nan", "base=inf", "base=1,,"])
def test_no_cost_model(text: str) -> None:
    with pytest.raises(ValueError, match="is no part of a cost model"):
        cost_model(text)


def test_emit() -> None:
    assert emit(None) is None
    assert emit("vllm") == Emit("vllm", None)
    assert emit("yaml=a.yaml") == Emit("yaml", Path("a.yaml"))
    assert set(EMITS) == set(emitters.EMITTERS)


@pytest.mark.parametrize("text", ["", "vlm", "yaml="])
def test_nothing_that_can_be_written(text: str) -> None:
    with pytest.raises(ValueError, match="is nothing that can be written"):
        emit(text)
