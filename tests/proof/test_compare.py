"""Bits first, then sizes."""

from __future__ import annotations

import math

import pytest
import torch

from cudagraph_doctor.proof.compare import Difference, Level, compare, compare_leaf, same_bits, without_values, worst
from cudagraph_doctor.settings import Tolerance

NAN = float("nan")


def level(a: object, b: object, **tolerance: float) -> Level:
    """Level of `a` against the reference `b`."""
    given = {"": Tolerance(**tolerance)} if tolerance else None
    return compare_leaf("x", a, b, given).level


def test_nan_equals_the_same_nan_and_minus_zero_is_not_zero() -> None:
    assert same_bits(torch.tensor([NAN]), torch.tensor([NAN]))
    assert not same_bits(torch.tensor([0.0]), torch.tensor([-0.0]))
    assert level(torch.tensor([0.0]), torch.tensor([-0.0])) is Level.SMALL


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float64])
def test_floats_have_small_and_large_differences(dtype: torch.dtype) -> None:
    reference = torch.linspace(0.5, 1.0, 8).to(dtype)
    raw = reference.clone().view(torch.uint8)
    raw[0] ^= 1  # the lowest bit
    assert level(raw.view(dtype), reference) is Level.SMALL
    assert level(torch.zeros(8).to(dtype), reference) is Level.LARGE


def test_complex_numbers_round_like_their_parts() -> None:
    reference = torch.tensor([1.0 + 1.0j, 0.5])
    assert level(reference * (1 + 1e-6), reference) is Level.SMALL
    assert level(reference * 1.1, reference) is Level.LARGE


@pytest.mark.parametrize(("wrong", "right"), [(NAN, 1.0), (1.0, NAN), (math.inf, -math.inf), (math.inf, 1.0)])
def test_non_finite_values_in_other_places_are_large(wrong: float, right: float) -> None:
    found = compare_leaf("x", torch.tensor([wrong, 2.0]), torch.tensor([right, 2.0]))
    assert found.level is Level.LARGE and found.reason and found.rows == (0,)


def test_nan_with_other_bits_is_no_difference_in_value() -> None:
    other = torch.tensor([0x7FC00001], dtype=torch.int32).view(torch.float32)
    assert other.isnan().all()
    assert level(torch.cat([other, torch.ones(1)]), torch.tensor([NAN, 1.0])) is Level.SMALL


def test_integers_bools_shapes_and_types_are_never_small() -> None:
    assert level(torch.tensor([1]), torch.tensor([2])) is Level.LARGE
    assert level(torch.tensor([True]), torch.tensor([False])) is Level.LARGE
    assert level(torch.zeros(2), torch.zeros(3)) is Level.LARGE
    assert level(torch.zeros(2), torch.zeros(2, dtype=torch.float64)) is Level.LARGE
    assert level(1, 1.0) is Level.LARGE
    assert level(NAN, NAN) is Level.EQUAL
    assert level(torch.zeros(2), 0) is Level.LARGE


def test_empty_and_strided_tensors() -> None:
    assert level(torch.zeros(0, 3), torch.zeros(0, 3)) is Level.EQUAL
    x = torch.arange(6.0).reshape(2, 3)
    assert level(x.T, x.T.contiguous()) is Level.EQUAL


def test_given_tolerance_decides() -> None:
    a, b = torch.tensor([1.05]), torch.tensor([1.0])
    assert level(a, b) is Level.LARGE
    assert level(a, b, rtol=0.1, atol=0.0) is Level.SMALL
    assert compare_leaf("y", a, b, {"x": Tolerance(0.1, 0.0)}).level is Level.LARGE


def test_whole_numbers_that_no_rounding_reaches_are_right_or_wrong() -> None:
    a, b = torch.tensor([134.0, 3.0]), torch.tensor([135.0, 3.0])
    assert compare_leaf("x", a, b).level is Level.SMALL
    found = compare_leaf("x", a, b, exact={"x"})
    assert found.level is Level.LARGE and found.exact and "in whole numbers that no rounding reaches" in str(found)
    other_kernel = compare_leaf("x", b + 1e-4, b, exact={"x"})
    assert other_kernel.level is Level.SMALL and not other_kernel.exact
    assert compare_leaf("x", a, b, {"": Tolerance(0.1, 0.0)}, {"x"}).level is Level.SMALL
    (token,) = compare({"x": torch.tensor([1])}, {"x": torch.tensor([2])}, exact={"x"})
    assert token.exact and worst([small("logits"), token]) is Level.LARGE


def test_host_values_can_be_left_out() -> None:
    (found,) = compare({"token": "x" * 99}, {"token": "y"})
    assert "instead of 'y'" in str(found) and len(str(found)) < 60
    assert [str(d) for d in without_values([found])] == ["token: another value"]


def test_rows_and_counts_are_named() -> None:
    a = torch.zeros(4, 3)
    b = a.clone()
    b[2, 1] = 5
    found = compare_leaf("x", b, a)
    assert (found.rows, found.count, found.total, found.max_abs) == ((2,), 1, 12, 5.0)


def test_a_missing_leaf_differs() -> None:
    found = compare({"a": 1}, {"a": 1, "b": torch.zeros(1)})
    assert [d.path for d in found] == ["b"] and found[0].level is Level.LARGE


def small(path: str) -> Difference:
    """Rounding."""
    return Difference(path, Level.SMALL, max_abs=0.1, scale=4.0)


def token() -> Difference:
    """A token that differs."""
    return Difference("tokens", Level.LARGE, count=1, total=4, integral=True)


def test_tokens_follow_rounded_logits_but_not_equal_ones() -> None:
    assert worst([small("logits"), token()]) is Level.SMALL
    assert worst([token()]) is Level.LARGE
    assert worst([]) is Level.EQUAL
    wrong_shape = Difference("tokens", Level.LARGE, reason="(3,) instead of (4,)", integral=True)
    assert worst([small("logits"), wrong_shape]) is Level.LARGE
