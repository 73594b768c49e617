"""Fingerprints by torch's operators, by the kernel, and by Python's integers are the same numbers."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from cudagraph_doctor.errors import Inconclusive
from cudagraph_doctor.proof import fingerprints
from cudagraph_doctor.proof.fingerprints import CHUNK, by_kernel, by_operators, chunks, fused, weights
from cudagraph_doctor.reference_models import nvrtc

SIZES = [1, 3, 4, 17, 511, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 3 * CHUNK + 6]


def random_bytes(size: int, device: str = "cpu") -> torch.Tensor:
    drawn = torch.randint(0, 256, (size,), generator=torch.Generator().manual_seed(size), dtype=torch.uint8)
    return drawn.to(device)


def by_integers(data: bytes) -> list[int]:
    """In Python's own integers, word by word."""
    told, found = weights().tolist(), []
    for start in range(0, len(data), CHUNK):
        part = data[start : start + CHUNK]
        words = (int.from_bytes(part[at : at + 4].ljust(4, b"\0"), "little", signed=True) for at in range(0, CHUNK, 4))
        total = sum(word * weight for word, weight in zip(words, told, strict=True)) % 2**64
        found.append(total - 2**64 if total >> 63 else total)
    return found


@pytest.mark.parametrize("size", SIZES)
def test_torchs_operators_sum_up_what_the_docstring_says(size: int) -> None:
    data = random_bytes(size)
    assert by_operators(data, weights()).tolist() == by_integers(bytes(data.numpy()))


def test_no_two_words_have_one_weight() -> None:
    # nor its negative, in the half of the bits that is left of a flipped sign: two of them would cancel
    left = [weight % 2**33 for weight in weights().tolist()]
    assert len({min(weight, 2**33 - weight) for weight in left}) == len(left) == CHUNK // 4
    assert all(weight % 2 for weight in left)


@pytest.mark.parametrize("stretch", [CHUNK, CHUNK // 2, 4096, 256])
def test_flipping_all_signs_of_a_stretch_shows(stretch: int) -> None:
    sums = weights().view(-1, stretch // 4).sum(1)
    assert ((sums << 31) != 0).all()


class Stand:
    """In the kernel's place: reads the memory that the table names."""

    def __init__(self) -> None:
        self.launches: list[tuple[tuple[int, ...], int]] = []

    def __call__(self, grid: tuple[int, ...], threads: int, marks: torch.Tensor, table: torch.Tensor) -> None:
        self.launches.append((grid, threads))
        for at, (address, size) in enumerate(table.tolist()):
            marks[at] = by_integers(ctypes.string_at(address, size))[0]


def test_the_kernel_is_launched_once_for_all_stretches() -> None:
    data = random_bytes(5 * CHUNK)
    stretches = [(data.data_ptr() + 3, CHUNK + 10), (data.data_ptr() + 2 * CHUNK, 7), (data.data_ptr(), 2 * CHUNK)]
    kernel: Any = Stand()
    found = by_kernel(kernel, stretches, "cpu")
    assert kernel.launches == [((5,), 1024)]
    parts = [data[3 : CHUNK + 13], data[2 * CHUNK : 2 * CHUNK + 7], data[: 2 * CHUNK]]
    assert [marks.tolist() for marks in found] == [by_operators(part, weights()).tolist() for part in parts]


def test_nothing_is_launched_for_nothing() -> None:
    kernel: Any = Stand()
    assert by_kernel(kernel, [], "cpu") == [] and not kernel.launches


def test_chunks_begin_anew_in_each_stretch() -> None:
    table, counts = chunks([(100, 2 * CHUNK + 1), (7, 5), (10**15, CHUNK)], "cpu")
    assert counts == [3, 1, 1]
    assert table.tolist() == [
        [100, CHUNK], [100 + CHUNK, CHUNK], [100 + 2 * CHUNK, 1], [7, 5], [10**15, CHUNK],
    ]  # fmt: skip


@pytest.fixture
def forgetful() -> Iterator[None]:
    fused.cache_clear()
    yield
    fused.cache_clear()


@pytest.mark.usefixtures("forgetful")
@pytest.mark.parametrize(
    "error", [Inconclusive("no cuda-core", fix="install it"), ImportError("cuda"), OSError("libnvrtc")]
)
def test_without_the_kernel_operators_do_it(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def kernel(name: str) -> Any:
        raise error

    monkeypatch.setattr(nvrtc, "kernel", kernel)
    assert fingerprints.fused() is None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("offset", [0, 16, 4, 1])
def test_the_kernel_and_operators_see_the_same(offset: int) -> None:
    kernel = fused()
    assert kernel is not None, "cuda-core compiles it"
    held = [random_bytes(offset + size, "cuda")[offset:] for size in SIZES]
    told = weights().cuda()
    found = by_kernel(kernel, [(data.data_ptr(), data.numel()) for data in held], "cuda")
    assert [marks.tolist() for marks in found] == [by_operators(data, told).tolist() for data in held]
    assert found[-1].tolist() == by_integers(bytes(held[-1].cpu().numpy()))
