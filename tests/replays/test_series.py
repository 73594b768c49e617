"""One value through many captures."""

from __future__ import annotations

from typing import Any

import pytest

from cudagraph_doctor.replays.candidates import Kind
from cudagraph_doctor.replays.series import Captures

A, B, C = (1, 4), (2, 4), (1, 3)
SIX = Captures((A, B, C, A, B, C), (False,) * 6)
MOVED = Captures((A, B, A, B, A, A, A, A), (False,) * 4 + (True,) * 4)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([5] * 6, None),
        ([5, 6, 7, 5, 6, 7], Kind.VALUE),
        ([5, 6, 5, 5, 6, 5], Kind.VALUE),
        ([5, 6, 7, 5, 6, 8], None),  # one input, two values: noise
        ([0, 0, 0, 0, 0, 1], None),
        ([1, 2, 3, 4, 5, 6], Kind.COUNTER),
        ([9, 7, 6, 3, 2, 1], Kind.COUNTER),
        ([3, 1, 4, 2, 6, 5], Kind.DRAW),
        (["c", "a", "b", "f", "e", "d"], Kind.DRAW),
    ],
)
def test_what_a_value_is(values: list[Any], kind: Kind | None) -> None:
    assert SIX.kind(values) is kind


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([5, 6, 5, 6, 5, 5, 5, 5], Kind.VALUE),  # the host moved on, and it did not follow
        ([5, 6, 5, 6, 6, 7, 8, 9], Kind.COUNTER),  # reset() brings it back, each run moves it
        ([5, 5, 5, 5, 8, 7, 6, 9], Kind.DRAW),
        ([0.5, 0.5, 0.5, 0.5, 0.1, 0.7, 0.3, 0.9], Kind.DRAW),
        ([5, 6, 5, 6, 7, 7, 8, 9], Kind.VALUE),  # two of them alike: by chance
        ([5, 5, 5, 5, 5, 7, 8, 9], None),
    ],
)
def test_moving_the_host_on_tells_its_own_state_from_the_steps_values(values: list[Any], kind: Kind | None) -> None:
    assert MOVED.kind(values) is kind


def test_one_capture_of_each_input_shows_no_counter() -> None:
    assert Captures((A, B, C), (False,) * 3).kind([1, 2, 3]) is Kind.VALUE


def test_values_of_inputs_come_from_their_first_captures_from_the_same_start() -> None:
    captures = Captures((A, B, A, B), (True, False, False, False))
    assert captures.of_inputs("wxyz") == {B: "x", A: "y"}
    assert captures.settled("wxyz") == [(B, "x"), (A, "y"), (B, "z")] and captures.moved("wxyz") == [(A, "w")]
