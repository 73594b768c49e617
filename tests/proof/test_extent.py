"""Stretches meet where some byte lies in both."""

from __future__ import annotations

import pytest

from cudagraph_doctor.proof.extent import Extent


@pytest.mark.parametrize(
    ("other", "meets"),
    [
        (Extent(0, 10), False),
        (Extent(0, 11), True),
        (Extent(19, 1), True),
        (Extent(20, 5), False),
        (Extent(0, 90), True),
        (Extent(15, 1), True),
    ],
)
def test_they_meet_either_way_round(other: Extent, meets: bool) -> None:
    extent = Extent(10, 10)
    assert extent.meets(other) is other.meets(extent) is meets


def test_they_are_in_the_order_of_their_addresses() -> None:
    assert sorted([Extent(8, 1), Extent(4, 9), Extent(4, 2)]) == [Extent(4, 2), Extent(4, 9), Extent(8, 1)]
