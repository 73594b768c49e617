"""Regions by the names that users give."""

from __future__ import annotations

from cudagraph_doctor.replays.model import Region
from cudagraph_doctor.replays.paths import called

REGIONS = (
    Region(0, "input", "slots", 1, 4),
    Region(1, "root", "runner.slots", 2, 4, aliases=("engine.buffers.mapping",)),
    Region(2, "unnamed", "", 3, 4),
)


def ids(name: str) -> list[int]:
    return [region.id for region in called(REGIONS, name)]


def test_whole_names_come_before_ends() -> None:
    assert ids("slots") == [0]
    assert ids("runner.slots") == [1]


def test_ends_after_a_dot() -> None:
    assert ids("mapping") == ids("buffers.mapping") == [1]
    assert ids("lots") == ids("apping") == []
