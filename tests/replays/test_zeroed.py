"""Memory that is handed out uninitialised: whose line asked for it, and zeros in it on demand."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cudagraph_doctor.replays.zeroed import Zeroed


@pytest.fixture(autouse=True)
def junk() -> None:
    """Freed memory is handed out again as it is."""
    torch.full((4096,), 7.0)


def test_what_is_handed_out_uninitialised_holds_zeros() -> None:
    like = torch.ones(4096)
    with Zeroed():
        made = [torch.empty(4096), torch.empty_like(like), like.new_empty(4096), torch.empty_strided((64, 64), (64, 1))]
    assert all(not tensor.any() for tensor in made)


def test_what_is_initialised_is_left_alone() -> None:
    with Zeroed() as mode:
        assert torch.ones(3).sum() == 3 and torch.full((2,), 5).tolist() == [5, 5]
    assert not mode.lines


def test_the_lines_are_told_apart() -> None:
    with Zeroed(frozenset()) as seen:
        for _ in range(2):
            torch.empty(3)
        torch.empty(3)
    assert [Path(line.file).name for line in seen.lines] == [Path(__file__).name] * 2
    first, second = seen.lines
    assert first.number < second.number


def test_only_the_memory_of_a_line_is_zeroed() -> None:
    def make() -> torch.Tensor:
        return torch.empty(3)

    with Zeroed(frozenset()) as seen:
        make()
    zeroed = list[int]()
    real = torch.Tensor.zero_

    def noted(self: torch.Tensor) -> torch.Tensor:
        zeroed.append(self.numel())
        return real(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.Tensor, "zero_", noted)
        with Zeroed(frozenset(seen.lines)):
            make()
            torch.empty(4)
    assert zeroed == [3]
