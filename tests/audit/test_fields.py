"""Options with their types, and those that nobody knows."""

from __future__ import annotations

import pytest

from cudagraph_doctor.audit.fields import MOST, Fields, tidy
from cudagraph_doctor.errors import UsageError


def test_values() -> None:
    fields = Fields("f", {"a-b": 3, "c": True, "d": "w", "e": [1, 2], "g": "3 4,5", "h": {"i": 1}, "j": '{"i": 2}'})
    assert (fields.integer("a_b"), fields.flag("c"), fields.word("d"), fields.sizes("e")) == (3, True, "w", (1, 2))
    assert fields.sizes("g") == (3, 4, 5)
    for name in "hj":
        section = fields.section(name)
        assert section is not None and section.integer("i") in (1, 2)
    assert fields.integer("none") is None and fields.rest() == ()


@pytest.mark.parametrize("value", [0, -1, 1.5, "x", "1.5", True, [1], MOST + 1])
def test_no_integer(value: object) -> None:
    with pytest.raises(UsageError, match='"n" is no value of its kind'):
        Fields("f", {"n": value}).integer("n")


@pytest.mark.parametrize("value", [[], "", "1,x", [1, None], [True], {"a": 1}, 4])
def test_no_sizes(value: object) -> None:
    with pytest.raises(UsageError, match='"n" is no value of its kind'):
        Fields("f", {"n": value}).sizes("n")


@pytest.mark.parametrize("value", [1, "yes"])
def test_no_flag(value: object) -> None:
    with pytest.raises(UsageError, match="no value of its kind"):
        Fields("f", {"n": value}).flag("n")


def test_an_empty_value_is_as_none() -> None:
    fields = Fields("f", {"n": None})
    assert fields.integer("n") is None and fields.rest() == ()


def test_what_may_decide_about_keys_is_not_skipped() -> None:
    fields = Fields("f", {"model": "m", "some_graph_switch": 1})
    with pytest.raises(UsageError, match='an option "some_graph_switch" that the audit does not know'):
        fields.rest()
    assert fields.rest(["some_graph_switch"]) == ("model", "some_graph_switch")


def test_what_is_next_to_a_known_option_is_not_skipped() -> None:
    fields = Fields("f", {"max_num_seq": 4})
    fields.integer("max_num_seqs")
    with pytest.raises(UsageError, match='Did you mean "max_num_seqs"'):
        fields.rest()


def test_strict_refuses_all() -> None:
    with pytest.raises(UsageError):
        Fields("f", {"model": "m"}).rest(strict=True)


def test_tidy() -> None:
    assert tidy([1, 2, 4]) == ((1, 2, 4), ())
    assert tidy([4, 2, 1]) == ((1, 2, 4), ()), "from the largest down is an order"
    assert tidy([2, 1, 4, 2]) == ((1, 2, 4), ("2: listed more than once", "not in order: 2, 1, 4"))
