"""A buffer that holds another input's values, on made-up readings; what is alike by chance is not said to."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest

from cudagraph_doctor.replays.mixed_up import held_instead
from cudagraph_doctor.replays.model import SMALL_BYTES, Content, History, Reading, Region, Replay, Run

Rows = Sequence[Sequence[int]]
A, B = [[1, 2], [2, 3], [3, 0]], [[5, 6], [6, 7], [7, 0]]
"""What two inputs should hold: two rows at two steps, one row at a third."""
LIVE = (2, 2, 1)


def content(numbers: Sequence[int], dtype: str = "int32", whole: bool = True) -> Content:
    data = struct.pack(f"<{len(numbers)}{'i' if dtype == 'int32' else 'f'}", *numbers)
    return Content(len(data), data.hex(), dtype, (len(numbers),), data=data if whole else None)


def history(whole: bool = True, kind: str = "input", dtype: str = "int32", **inputs: tuple[Rows, Rows]) -> History:
    """Each input with what its buffer held, and should have held, at each replay."""
    regions = [Region(i, kind, name, 4096 * i, 8, "int32", (2,)) for i, name in enumerate(inputs)]
    readings = [
        Reading(replay, region, content(held, dtype, whole), content(expected, "int32", whole))
        for region, (every, right) in enumerate(inputs.values())
        for replay, (held, expected) in enumerate(zip(every, right, strict=True))
    ]
    replays = tuple(Replay(i, i, rows, "2", (0,)) for i, rows in enumerate(LIVE[: len(readings) // len(regions)]))
    return History(Run("t", "loop", "emulated"), (), tuple(regions), replays, tuple(readings))


def found(made: History, name: str = "a") -> str:
    return held_instead(made, next(region for region in made.regions if region.name == name))


def test_another_inputs_values_are_named() -> None:
    made = history(a=(B, A), b=(A, B))
    assert (found(made), found(made, "b")) == ("b", "a")
    assert found(history(a=(B, A), b=(B, B))) == "b", "b may be right itself"
    assert found(history(a=(A, A), b=(B, B))) == ""


def test_padding_rows_may_differ() -> None:
    assert found(history(a=([*B[:2], [7, 9]], A), b=(B, B))) == "b"
    assert found(history(a=([*B[:2], [8, 0]], A), b=(B, B))) == "", "and live rows may not"


def test_of_inputs_with_the_same_values_the_one_that_is_swapped_is_named() -> None:
    assert found(history(c=(B, B), a=(B, A), b=(A, B))) == "b"
    assert found(history(c=(B, B), a=(B, A))) == "c"


def test_what_is_staged_to_another_dtype_is_the_same() -> None:
    assert found(history(dtype="float32", a=(B, A), b=(A, B))) == "b"


def test_what_does_not_move_may_be_alike_by_chance() -> None:
    still = [[5, 6], [5, 6], [5, 0]]
    assert found(history(a=(still, A), b=(still, still))) == "", "fewer rows are no other values"


def test_of_two_that_are_swapped_one_has_to_move() -> None:
    still = [[5, 6], [5, 6], [5, 0]]
    made = history(a=(still, A), b=(A, still))
    assert (found(made), found(made, "b")) == ("b", "a")
    other = [[8, 9], [8, 9], [8, 0]]
    assert found(history(a=(still, other), b=(other, still))) == "", "nothing was seen to be staged"


@pytest.mark.parametrize("whole", [True, False])
def test_large_contents_are_compared_by_their_hashes(whole: bool) -> None:
    assert SMALL_BYTES and found(history(whole, a=(B, A), b=(A, B))) == "b"
    assert (found(history(whole, a=([*B[:2], [7, 9]], A), b=(B, B))) == "b") is whole, "padding rows as well"


def test_only_inputs_have_values_of_their_own() -> None:
    assert found(history(kind="state", a=(B, A), b=(A, B))) == ""
