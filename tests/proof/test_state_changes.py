"""What is kept of a state gives back all of it, and takes the memory of what differs."""

from __future__ import annotations

import pytest
import torch

from cudagraph_doctor.graph.backend import Backend
from cudagraph_doctor.proof.state import Extent, Memory
from cudagraph_doctor.proof.state_changes import LINE, Changes


def extent_of(tensor: torch.Tensor) -> Extent:
    return Extent(tensor.data_ptr(), tensor.nbytes)


@pytest.mark.parametrize("size", [1, LINE - 1, LINE, 10 * LINE, 10 * LINE + 7])
@pytest.mark.parametrize("changed", [[], [0], [0, -1]])
def test_all_of_it_is_given_back(backend: Backend, size: int, changed: list[int]) -> None:
    tensor = torch.arange(size, device=backend.device).to(torch.uint8)
    memory = Memory(backend)
    base = memory.save([extent_of(tensor)]).memory
    tensor[changed] = 255
    wanted = tensor.cpu()
    found = Changes(memory, [extent_of(tensor)], base)
    tensor.fill_(3)
    assert list(found) == [extent_of(tensor)] and len(found) == 1
    assert torch.equal(found[extent_of(tensor)].cpu(), wanted)
    assert torch.equal(base[extent_of(tensor)].cpu(), torch.arange(size).to(torch.uint8)), "the base is as it was"


def test_only_lines_that_differ_are_held(backend: Backend) -> None:
    tensor = torch.zeros(1000 * LINE, dtype=torch.uint8, device=backend.device)
    memory = Memory(backend)
    base = memory.save([extent_of(tensor)]).memory
    tensor[5 * LINE] = tensor[5 * LINE + 9] = tensor[-1] = 1
    assert Changes(memory, [extent_of(tensor)], base).bytes_held == 2 * (LINE + 8)


def test_what_the_base_does_not_have_is_kept_whole(backend: Backend) -> None:
    tensor = torch.arange(100, device=backend.device)
    found = Changes(Memory(backend), [extent_of(tensor)], {})
    tensor.zero_()
    again = found[extent_of(tensor)]
    assert again.view(torch.int64).tolist() == list(range(100)) and found.bytes_held == 800
    again.zero_()
    assert found[extent_of(tensor)].any(), "who looks it up has a copy"


def test_what_is_gone_is_left_out(backend: Backend) -> None:
    tensor = torch.zeros(1000, device=backend.device)
    extent, memory = extent_of(tensor), Memory(backend)
    base = memory.save([extent]).memory
    del tensor
    memory.refresh()
    found = Changes(memory, [extent], base)
    assert not found and extent not in found
    with pytest.raises(KeyError):
        found[extent]
