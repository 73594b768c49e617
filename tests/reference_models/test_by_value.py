"""The operators that take a number of the host's: what they compute, on every device."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cudagraph_doctor.reference_models import by_value


@pytest.mark.parametrize("shape", [(1, 8), (3, 64), (16, 1000)])
def test_scale_rows(place: Any, shape: tuple[int, int]) -> None:
    if place.device == "cuda":
        pytest.importorskip("triton", reason="needs Triton")
    x = place.randn(*shape, seed=1)
    out = by_value.scale_rows(x, 0.375)
    assert out.dtype == x.dtype and torch.equal(out, x * 0.375)


@pytest.mark.parametrize("rows", [0, 1, 3, 5, 16])
def test_load_rows_behind_the_descriptor_are_zeros(place: Any, rows: int) -> None:
    x = place.randn(5, 72, seed=2)
    place.poison()
    out = by_value.load_rows(x, rows)
    assert torch.equal(out[:rows], x[:rows]) and not out[rows:].any()


LENGTHS = [1, 0, 16, 17, 80]


def contexts(place: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    cache = place.randn(32, 16, 2, 16, seed=3)
    table = place.ints([[(row * 5 + column) % 32 for column in range(5)] for row in range(5)])
    return cache, table, place.ints(LENGTHS)


def largest(cache: torch.Tensor, table: torch.Tensor, row: int, length: int) -> torch.Tensor:
    keys = cache[table[row].long()].flatten(0, 1)[:length].flatten(1).float().abs()
    return keys.amax(dim=0) if length else keys.new_zeros(keys.size(1))


@pytest.mark.parametrize("splits", [1, 2, 5, 9])
def test_key_amax_strided_is_the_same_for_any_number_of_splits(place: Any, splits: int) -> None:
    cache, table, lengths = contexts(place)
    out = by_value.key_amax(cache, table, lengths, splits, True)
    for row, length in enumerate(LENGTHS):
        assert torch.equal(out[row], largest(cache, table, row, length))


@pytest.mark.parametrize("splits", [1, 2, 5])
def test_key_amax_otherwise_looks_at_so_many_stretches(place: Any, splits: int) -> None:
    cache, table, lengths = contexts(place)
    out = by_value.key_amax(cache, table, lengths, splits, False)
    for row, length in enumerate(LENGTHS):
        assert torch.equal(out[row], largest(cache, table, row, min(length, splits * by_value.SPLIT_TOKENS)))


@pytest.mark.parametrize("rows", [0])
def test_no_rows(place: Any, rows: int) -> None:
    cache, table, lengths = contexts(place)
    assert by_value.load_rows(place.randn(rows, 8, seed=4), 0).shape == (0, 8)
    assert by_value.key_amax(cache, table[:0], lengths[:0], 1, True).shape == (0, 32)
