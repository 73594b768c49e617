"""The judge of readings, on made-up ones: how a region came to hold something else than it should."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import replace

import pytest

from cudagraph_doctor.findings import Location
from cudagraph_doctor.replays.content import bounds, judge, short
from cudagraph_doctor.replays.model import (
    Content,
    Flag,
    History,
    Measured,
    Reader,
    Reading,
    Region,
    Replay,
    Run,
    Span,
    Write,
)

HARMED = Measured(2, 2, 0, 2, "logits")
Rows = Sequence[Sequence[int]]


def content(numbers: Sequence[int], shape: tuple[int, ...]) -> Content:
    data = struct.pack(f"<{len(numbers)}i", *numbers)
    return Content(len(data), hashlib.sha256(data).hexdigest()[:16], "int32", shape, min(numbers), max(numbers), data)


def history(
    held: Rows,
    expected: Rows | None = None,
    *,
    rows: Sequence[int] | None = None,
    shape: tuple[int, ...] | None = None,
    kind: str = "input",
    readers: tuple[Reader, ...] = (),
    harmed: Sequence[int] = (),
) -> History:
    """One region of int32, what it held at each replay and should have held."""
    shape = shape or (len(held[0]),)
    region = Region(0, kind, "x", 4096, 4 * len(held[0]), "int32", shape, readers=readers)
    live = rows or [shape[0]] * len(held)
    replays = [
        Replay(i, i, live[i], str(shape[0]), (0,), HARMED if i in harmed else Measured()) for i in range(len(held))
    ]
    readings = []
    for number, numbers in enumerate(held):
        wanted = expected[number] if expected else numbers
        spans = tuple(Span(4 * i, 4 * i + 4) for i, (a, b) in enumerate(zip(numbers, wanted, strict=True)) if a != b)
        before = None if number == 0 else held[number - 1] != numbers
        readings.append(Reading(number, 0, content(numbers, shape), content(wanted, shape), None, None, spans, before))
    return History(Run("t", "loop", "emulated"), (), (region,), tuple(replays), tuple(readings))


def judged(*arguments: Rows, **more: object) -> Flag:
    (flag,) = judge(history(*arguments, **more))  # type: ignore[arg-type]
    return flag


def test_what_is_as_it_should_be_is_not_flagged() -> None:
    assert judge(history([[1, 2], [3, 4]])) == []


def test_never_refreshed() -> None:
    flag = judged([[9, 9], [9, 9]], [[1, 2], [3, 4]], harmed=[1])
    assert (flag.code, flag.replay, flag.where, flag.held, flag.expected) == (
        "CGD301",
        1,
        "rows 0 to 1",
        [9, 9],
        [3, 4],
    )
    assert flag.evidence == {"replays": 2, "changed_at": 0, "not_as_expected_at": 2}


def test_refreshed_in_part_tells_rows_and_columns() -> None:
    flag = judged([[1, 0, 2, 0], [3, 0, 4, 0]], [[1, 7, 2, 7], [3, 8, 4, 8]], shape=(2, 2))
    assert (flag.code, flag.where) == ("CGD302", "rows 0 to 1, column 1")


STEADY = [[1, 9, 2, 9], [1, 9, 2, 9]], [[1, 7, 2, 7], [1, 8, 2, 8]]
"""Held and expected: a column that is right, and the same at each step, beside one that is not refreshed."""


def staged(made: History) -> History:
    """The same where staging writes into the buffer at each step but the first, which has none before it."""
    last = replace(made.readings[1], written=Write(Location("serve.py", 7), 1))
    return replace(made, readings=(made.readings[0], last))


def test_a_column_that_stays_is_copied_if_staging_writes_there() -> None:
    (flag,) = judge(staged(history(*STEADY, shape=(2, 2))))
    assert (flag.code, flag.where) == ("CGD302", "rows 0 to 1, column 1")
    assert judged(*STEADY, shape=(2, 2)).code == "CGD301", "nothing is written"
    (flag,) = judge(staged(history(*STEADY, shape=(4,))))
    assert flag.code == "CGD301", "it has no columns"


def test_what_is_written_and_right_nowhere_is_not_refreshed() -> None:
    made = history([[9, 9, 9, 9]] * 2, [[1, 7, 9, 7], [9, 8, 2, 8]], shape=(2, 2))
    assert judge(staged(made))[0].code == "CGD301", "each column is right in some row by chance"


def test_padding_rows_have_no_say_in_which_columns_are_copied() -> None:
    made = history([[1, 9, 5, 5]] * 2, [[1, 7, 0, 0], [1, 8, 0, 0]], shape=(2, 2), rows=[1, 1])
    assert judge(staged(made))[0].code == "CGD302"


def test_a_value_that_stays_is_no_refresh() -> None:
    """Row 1 is right by chance: it is the same at each step."""
    assert judged([[9, 5], [9, 5]], [[1, 5], [2, 5]]).code == "CGD301"


def test_a_stale_tail() -> None:
    flag = judged([[1, 2, 3], [4, 5, 3]], [[1, 2, 3], [4, 5, 0]], rows=[3, 2])
    assert (flag.code, flag.where) == ("CGD303", "padding row 2")


def test_roots_have_no_padding() -> None:
    assert judged([[1, 2, 3], [4, 5, 3]], [[1, 2, 3], [4, 5, 0]], rows=[3, 2], kind="root").code == "CGD302"


@pytest.mark.parametrize(("kind", "code"), [("weight", "CGD308"), ("input", "CGD305"), ("root", "CGD305")])
def test_another_tensor_under_the_name(kind: str, code: str) -> None:
    made = history([[1, 2], [1, 2]], kind=kind)
    moved = replace(made.readings[1], live=content([5, 6], (2,)))
    (flag,) = judge(replace(made, readings=(made.readings[0], moved)))
    assert (flag.code, flag.replay, flag.held, flag.expected) == (code, 1, [1, 2], [5, 6])


def test_another_tensor_with_the_same_values_does_no_harm() -> None:
    made = history([[1, 2]])
    assert judge(replace(made, readings=(replace(made.readings[0], live=content([1, 2], (2,))),))) == []


def test_an_optional_input_that_was_left() -> None:
    made = history([[1, 2], [1, 2]], [[1, 2], [0, 0]])
    absent = replace(made.readings[1], absent=True)
    (flag,) = judge(replace(made, readings=(made.readings[0], absent)))
    assert flag.code == "CGD316"


def test_filled_at_the_front_and_read_behind() -> None:
    flag = judged([[1, 2, 7, 7], [3, 4, 7, 7]], readers=(Reader(0, 3, 1, 8),))
    assert (flag.code, flag.where) == ("CGD304", "row 2 and up are read, the rows before it are filled")
    assert judge(history([[1, 2, 7, 7], [3, 4, 7, 7]], readers=(Reader(0, 3, 1, 0),))) == []
    assert judge(history([[1, 2, 7, 7], [3, 4, 8, 7]], readers=(Reader(0, 3, 1, 8),))) == []


def test_a_scalar_has_no_rows() -> None:
    made = history([[1], [1]], [[1], [2]])
    (flag,) = judge(replace(made, regions=(replace(made.regions[0], shape=()),)))
    assert (flag.code, flag.where) == ("CGD301", "")


def test_who_wrote_it_last_is_told() -> None:
    made = history([[1, 1], [2, 1]], [[1, 1], [2, 2]])
    written = replace(made.readings[1], written=Write(Location("serve.py", 7), 1))
    (flag,) = judge(replace(made, readings=(made.readings[0], written)))
    assert flag.evidence["last_written"] == "step 1, serve.py:7"


def test_what_was_not_kept_whole_is_told_by_range_and_hash() -> None:
    large = Content(1 << 20, "abc", "float32", (512, 512), -1.0, 2.0)
    assert short(large) == {"shape": [512, 512], "min": -1.0, "max": 2.0, "hash": "abc"}
    assert short(content(list(range(30)), (30,)))[-2:] == [23, "..."]


def test_bounds_have_the_digits_of_their_dtype() -> None:
    large = Content(8192, "ab", "float32", (2048,), 3.4000000953674316, float("inf"))
    assert bounds(large) == (3.4, float("inf")) and bounds(Content(8192, "ab")) == (None, None)
    told = short(large)
    assert told["min"] == 3.4
