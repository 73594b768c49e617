"""Looking addresses up among ranges that nest, overlap and touch."""

from __future__ import annotations

import random

from cudagraph_doctor.graph.model import Region
from cudagraph_doctor.graph.regions import NamedRange, Regions


def inputs(**ranges: tuple[int, int]) -> Regions:
    return Regions(NamedRange("input", name, address, size) for name, (address, size) in ranges.items())


def test_nothing_is_found_without_ranges_or_outside_them() -> None:
    assert Regions().find(0) is None
    found = inputs(a=(100, 10))
    assert [found.find(address) for address in (99, 110)] == [None, None]
    assert found.find(100) == Region("input", "a", 0) and found.find(109) == Region("input", "a", 9)


def test_the_innermost_range_wins() -> None:
    found = inputs(inner=(120, 10), outer=(100, 100), innermost=(125, 1))
    names = [found.find(address) for address in (100, 120, 125, 126, 130, 199)]
    assert [str(region) for region in names] == [
        'input "outer"',
        'input "inner"',
        'input "innermost"',
        'input "inner" + 6',
        'input "outer" + 30',
        'input "outer" + 99',
    ]


def test_touching_ranges_do_not_run_into_each_other() -> None:
    found = inputs(a=(100, 10), b=(110, 10))
    assert (found.find(109), found.find(110)) == (Region("input", "a", 9), Region("input", "b", 0))


def test_of_equal_ranges_the_later_wins() -> None:
    assert inputs(first=(100, 10), second=(100, 10)).find(105) == Region("input", "second", 5)


def test_empty_ranges_hold_nothing() -> None:
    assert inputs(empty=(100, 0)).find(100) is None


def test_a_far_inner_range_does_not_hide_the_outer_one() -> None:
    found = inputs(outer=(0, 1 << 46), inner=(5, 1))
    assert found.find(1 << 45) == Region("input", "outer", 1 << 45)


def test_agrees_with_a_plain_search() -> None:
    draw = random.Random(0)
    for _ in range(50):
        ranges = [NamedRange("state", str(n), draw.randrange(40), draw.randrange(12)) for n in range(draw.randrange(9))]
        found = Regions(ranges)
        for address in range(55):
            holding = [(r.bytes, -n, r) for n, r in enumerate(ranges) if r.address <= address < r.address + r.bytes]
            expected = min(holding, key=lambda entry: entry[:2])[2] if holding else None
            assert found.find(address) == (
                None if expected is None else Region("state", expected.name, address - expected.address)
            )
