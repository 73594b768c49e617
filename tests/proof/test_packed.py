"""Copies lie side by side, each at a line of its own."""

from __future__ import annotations

import pytest
import torch

from cudagraph_doctor.proof.extent import Extent
from cudagraph_doctor.proof.packed import LINE, Packed, packed


def test_each_part_is_looked_up_as_it_was() -> None:
    parts = {
        Extent(n * 1000, size): torch.full((size,), n + 1, dtype=torch.uint8) for n, size in enumerate((3, 256, 300))
    }
    copies = Packed(dict(reversed(parts.items())))
    assert list(copies) == sorted(parts) and len(copies) == 3
    assert all(torch.equal(copies[extent], part) for extent, part in parts.items())
    assert copies.nbytes == 4 * LINE, "in whole lines"
    (group,) = copies.groups
    assert group.starts == (0, 1, 2) and [group.extent_at(line).bytes for line in range(4)] == [3, 256, 300, 300]


def test_copies_are_not_the_parts() -> None:
    part = torch.zeros(LINE, dtype=torch.uint8)
    copies = Packed({Extent(0, LINE): part})
    part.fill_(1)
    assert not copies[Extent(0, LINE)].any()


def test_what_is_not_there_is_not_found() -> None:
    copies = Packed({Extent(0, 4): torch.zeros(4, dtype=torch.uint8)})
    assert Extent(0, 4) in copies and Extent(0, 5) not in copies and not Packed({})
    with pytest.raises(KeyError):
        copies[Extent(0, 5)]


def test_behind_a_part_are_zeros() -> None:
    lines = packed(
        [torch.ones(5, dtype=torch.uint8), torch.empty(0, dtype=torch.uint8), torch.ones(LINE, dtype=torch.uint8)]
    )
    assert lines.shape == (2, LINE) and lines.sum(1).tolist() == [5, LINE]


def test_a_long_part_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cudagraph_doctor.proof.packed._MOST", 10)
    sizes = (4, 5, 30, 1, 9)
    parts = {Extent(100 * n, size): torch.zeros(size, dtype=torch.uint8) for n, size in enumerate(sizes)}
    assert [[e.bytes for e in group.extents] for group in Packed(parts).groups] == [[4, 5], [30], [1, 9]]
