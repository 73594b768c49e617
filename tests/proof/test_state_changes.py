"""What is kept of a state gives back all of it, and takes the memory of what differs."""

from __future__ import annotations

import itertools

import pytest
import torch

from cudagraph_doctor.graph.backend import Backend
from cudagraph_doctor.proof.extent import Extent
from cudagraph_doctor.proof.packed import LINE, Packed
from cudagraph_doctor.proof.state import Memory
from cudagraph_doctor.proof.state_changes import Changes, same_state, unlike


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
    found = Changes(Memory(backend), [extent_of(tensor)], Packed({}))
    tensor.zero_()
    again = found[extent_of(tensor)]
    assert again.view(torch.int64).tolist() == list(range(100)) and found.bytes_held == 4 * LINE, "in whole lines"
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


def several(backend: Backend, sizes: list[int]) -> tuple[torch.Tensor, list[Extent]]:
    """Extents side by side, of `sizes` bytes, that begin at multiples of LINE."""
    starts = [sum(-(-size // LINE) * LINE for size in sizes[:n]) for n in range(len(sizes) + 1)]
    data = torch.zeros(starts[-1], dtype=torch.uint8, device=backend.device)
    return data, [Extent(data.data_ptr() + start, size) for start, size in zip(starts, sizes, strict=False)]


SIZES = [LINE, 3 * LINE + 5, 7, 2 * LINE, LINE]


@pytest.mark.parametrize("at_once", [1, 4 * LINE, 1 << 24])
@pytest.mark.parametrize("seed", range(5))
def test_what_is_unlike_is_what_differs(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, at_once: int, seed: int
) -> None:
    monkeypatch.setattr("cudagraph_doctor.proof.packed._MOST", at_once)
    data, extents = several(backend, SIZES)
    memory = Memory(backend)
    base = memory.save(extents).memory
    assert isinstance(base, Packed) and len(base.groups) == {1: 5, 4 * LINE: 3, 1 << 24: 1}[at_once]
    draw = torch.Generator().manual_seed(seed)
    states, copies = [], []
    for _ in range(4):
        data.zero_()
        for extent in extents:
            if torch.rand((), generator=draw) < 0.6:
                at = int(torch.randint(extent.bytes, (), generator=draw))
                data[extent.address - data.data_ptr() + at] = int(torch.randint(3, (), generator=draw))
        states.append(Changes(memory, extents, base))
        copies.append({extent: states[-1][extent] for extent in extents})
    for state, copy in zip(states, copies, strict=True):
        assert same_state(state, copy) and unlike(state, copy) == [], "one of them is put together for it"
    for (a, first), (b, second) in itertools.product(zip(states, copies, strict=True), repeat=2):
        differ = [extent for extent in extents if not torch.equal(first[extent], second[extent])]
        assert unlike(a, b) == differ and same_state(a, b) is not bool(differ)


def test_only_what_both_have_is_compared(backend: Backend) -> None:
    data, extents = several(backend, SIZES)
    memory = Memory(backend)
    base = memory.save(extents[:3]).memory
    before = Changes(memory, extents[:4], base)
    data.fill_(1)
    after = Changes(memory, extents[1:], base)
    assert list(before) == extents[:4] and list(after) == extents[1:], "with the base, and whole"
    assert unlike(before, after) == extents[1:4]
    assert all(torch.equal(after[extent], torch.ones_like(after[extent])) for extent in after)
    assert not any(before[extent].any() for extent in before)


def test_bytes_behind_an_extent_are_not_its_own(backend: Backend) -> None:
    data, (extent,) = several(backend, [7])
    memory = Memory(backend)
    base = memory.save([extent]).memory
    data[7:] = 9
    assert same_state(Changes(memory, [extent], base), base)
