"""Which host value a baked number goes along with."""

from __future__ import annotations

from typing import Any

from cudagraph_doctor.replays.following import followed
from cudagraph_doctor.replays.model import Dump


def dumps(**host: list[Any]) -> list[Dump]:
    return [
        Dump(at, at, 4, "4", (), host={name: values[at] for name, values in host.items()})
        for at in range(len(next(iter(host.values()))))
    ]


def test_an_equal_value_is_followed() -> None:
    assert followed([15, 16, 17], dumps(length=[15, 16, 17], step=[1, 2, 3])) == "length"


def test_a_multiple_is_followed_where_nothing_is_equal() -> None:
    assert followed([7.5, 8.0, 9.0], dumps(length=[15, 16, 18], rows=[4, 4, 3])) == "length"
    assert followed([7.5, 8.0], dumps(length=[15, 16])) == "length"


def test_a_multiple_plus_a_constant_takes_three_values() -> None:
    assert followed([8.5, 9.0, 10.0], dumps(length=[15, 16, 18])) == "length"
    assert followed([8.5, 9.0], dumps(length=[15, 16])) == ""
    assert followed([8.5, 9.0, 9.0], dumps(length=[15, 16, 16])) == ""
    assert followed([8.5, 9.0, 10.1], dumps(length=[15, 16, 18])) == ""


def test_the_value_after_the_capture_counts_too() -> None:
    made = [Dump(at, 1, 4, "4", (), host={"rounds": at}, host_after={"rounds": at + 1}) for at in range(3)]
    assert followed([1, 2, 3], made) == "rounds"
    assert followed([0, 1, 2], made) == "rounds"


def test_of_several_the_shortest_path() -> None:
    assert followed([1, 2, 3], dumps(**{"runner.meta.step": [1, 2, 3], "step": [1, 2, 3]})) == "step"


def test_what_goes_along_with_nothing() -> None:
    assert followed([1, 5, 2], dumps(length=[15, 16, 17])) == ""
    assert followed([1, 1, 1], dumps(one=[1, 1, 1])) == ""
    assert followed(["00ff", "00fe"], dumps(length=[15, 16])) == ""
    assert followed([1, 2, 3], dumps(mode=["a", "b", "c"], flag=[True, False, True])) == ""


def test_a_float_of_four_bytes_is_as_near_as_it_gets() -> None:
    assert followed([0.1000000015, 0.2000000030], dumps(scale=[0.1, 0.2])) == "scale"


def test_a_path_that_some_dumps_lack_is_not_followed() -> None:
    made = dumps(length=[1, 2, 3])
    assert followed([1, 2, 3, 4], [*made, Dump(3, 3, 4, "4", ())]) == ""
