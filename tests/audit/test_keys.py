"""Which key serves a batch, and how ranges are said."""

from __future__ import annotations

import pytest

from cudagraph_doctor.audit.keys import KeySet, Mode, Served, Unit, fitting, spans

FULL, EAGER = Mode.FULL, Mode.EAGER


@pytest.mark.parametrize(
    ("size", "served"),
    [
        (1, Served(FULL, 1)),
        (3, Served(FULL, 4)),
        (4, Served(FULL, 4)),
        (5, Served(Mode.PIECEWISE, 8)),
        (9, Served(EAGER)),
    ],
)
def test_padded(size: int, served: Served) -> None:
    assert KeySet("decode", (1, 2, 4), 9, piecewise=(4, 8)).serve(size) == served


def test_not_padded() -> None:
    keys = KeySet("decode", (1, 2, 4), 4, padded=False)
    assert [keys.serve(n).key for n in range(1, 6)] == [1, 2, None, 4, None]


def test_only_whole_requests() -> None:
    keys = KeySet("verify", (3, 6), 2, Unit.TOKENS, 3, uniform=True, piecewise=(8,))
    assert [keys.serve(n) for n in (3, 4, 6)] == [Served(FULL, 3), Served(Mode.PIECEWISE, 8), Served(FULL, 6)]
    assert keys.size(2) == 6


def test_raises_up_to_a_size() -> None:
    keys = KeySet("decode", (1,), 9, fails_up_to=4)
    assert [keys.serve(n).mode for n in (1, 4, 5)] == [FULL, Mode.FAILS, EAGER]


def test_adapters() -> None:
    keys = KeySet("decode", (1, 2), 2, adapters=(0, 2), most_adapters=3)
    assert [keys.serves_adapters(n) for n in range(4)] == [True, True, True, False]
    assert not KeySet("decode", (1,), 1, adapters=(2,)).serves_adapters(0)
    assert KeySet("decode", (1,), 1).serves_adapters(7)
    assert keys.graphs == 4


def test_fitting_nothing() -> None:
    assert fitting((), 1, padded=True) is None


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ([], ""),
        ([4], "4"),
        ([1, 2], "1 and 2"),
        ([20, 17, 18, 19, 19, 3], "3, 17 to 20"),
        (range(1, 30, 2), "1, 3, 5, 7, 9, ..., 29"),
    ],
)
def test_spans(numbers: list[int], said: str) -> None:
    assert spans(numbers) == said
