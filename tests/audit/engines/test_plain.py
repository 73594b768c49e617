"""Plain files: one list, several sets, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from cudagraph_doctor.audit.engines import plain
from cudagraph_doctor.audit.engines.rule import Asked
from cudagraph_doctor.audit.fields import Fields
from cudagraph_doctor.audit.keys import Configuration, Mode, Unit
from cudagraph_doctor.errors import UsageError


def read(**options: Any) -> Configuration:
    return plain.read(Fields("f", options), Asked(max_batch=options.pop("most", None)))


def test_one_list() -> None:
    [keys] = read(buckets=[4, 2, 1, 4], max_batch=6, without_key="raises").sets
    assert (keys.full, keys.most, keys.unit) == ((1, 2, 4), 6, Unit.REQUESTS)
    assert keys.serve(5).mode is Mode.FAILS


def test_the_largest_batch_from_the_command_line() -> None:
    assert plain.read(Fields("f", {"buckets": [1]}), Asked(max_batch=3)).sets[0].most == 3


def test_keys_that_hold_no_whole_requests_are_left_out_and_said() -> None:
    made = read(buckets=[1, 2, 3, 4, 6, 8], max_batch=4, unit="tokens", tokens_per_request=3)
    assert made.sets[0].full == (3, 6)
    assert made.untidy == ("1, 2, 4, 8: no multiple of 3 tokens a request, so no whole requests fit",)


def test_several_sets() -> None:
    made = read(
        max_batch=8,
        sets={"verify": {"buckets": [4, 8], "tokens_per_request": 3}, "draft_graphs": {"buckets": [8], "max_batch": 4}},
    )
    assert [(keys.name, keys.full, keys.most) for keys in made.sets] == [
        ("verify", (4, 8), 8),
        ("draft_graphs", (8,), 4),
    ]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_batch": 4}, "has no list of buckets"),
        ({"buckets": [1]}, "does not say the largest batch"),
        ({"buckets": [], "max_batch": 4}, "no value of its kind"),
        ({"buckets": [0, 1], "max_batch": 4}, "no value of its kind"),
        ({"buckets": [1.5], "max_batch": 4}, "no value of its kind"),
        ({"buckets": [True], "max_batch": 4}, "no value of its kind"),
        ({"buckets": [1], "max_batch": 4, "unit": "rows"}, "no value of its kind"),
        ({"buckets": [1], "max_batch": 4, "without_key": "crash"}, "no value of its kind"),
        ({"buckets": [1], "max_batch": 4, "padding": 1}, "no value of its kind"),
        ({"buckets": [1], "max_batch": 4, "bukets": 3}, "Did you mean"),
        ({"max_batch": 4, "sets": {}}, "no value of its kind"),
        ({"max_batch": 4, "sets": {"verify": None}}, "no value of its kind"),
        ({"max_batch": 4, "sets": {"verify": {"buckets": [1], "oops": 1}}}, "does not know"),
    ],
)
def test_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read(**options)
