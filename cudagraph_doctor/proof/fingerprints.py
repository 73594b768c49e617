"""Fingerprints of memory: one 64-bit number a chunk, by which a change of any of its bytes, or of their order, shows.

A chunk's words are summed up, each weighed by where it lies. On a GPU one kernel reads all chunks, once; where it
cannot be compiled, and on a CPU, torch's operators do the same in more passes.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch

from cudagraph_doctor.graph.unseen import unseen
from cudagraph_doctor.reference_models import nvrtc
from cudagraph_doctor.reference_models.nvrtc import Kernel

CHUNK = 1 << 16
"""Granularity of fingerprints, bytes."""
_THREADS, _PASSES, _WORDS = 1024, 4, 4
"""How the kernel divides a chunk: the words that a thread reads at once, and how often it does."""
_SLAB = 1 << 26
"""Bytes that torch's operators look at at once: bounds the temporary memory, which is twice as large."""
_64_BITS = (1 << 64) - 1


@functools.cache
def weights() -> torch.Tensor:
    """What the words of a chunk are weighed by, in order: odd numbers. Shape (CHUNK / 4,), int64, on the CPU."""
    threads, places = (
        torch.tensor([_weight(number) for number in numbers], dtype=torch.int64, device="cpu")
        for numbers in (range(_THREADS), range(_THREADS, _THREADS + _PASSES * _WORDS))
    )
    return (threads.view(1, -1, 1) * places.view(_PASSES, 1, _WORDS)).flatten()


def _weight(number: int) -> int:
    """The first output of SplitMix64 for this seed, made odd: a signed number of 64 bits."""
    mixed = (number + 1) * 0x9E3779B97F4A7C15 & _64_BITS
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & _64_BITS
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & _64_BITS
    odd = (mixed ^ mixed >> 31) | 1
    return odd - (1 << 64) if odd >> 63 else odd


def by_operators(data: torch.Tensor, weighed: torch.Tensor) -> torch.Tensor:
    """Fingerprints by torch's operators.

    Args:
        data: uint8, shape (n,), n > 0, at any address.
        weighed: `weights()` on the same device.

    Returns: int64, one a chunk; the last chunk may be short.
    """
    parts = []
    with unseen():
        for start in range(0, data.numel(), _SLAB):
            slab = data[start : start + _SLAB]
            missing = -slab.numel() % (CHUNK if slab.numel() > CHUNK else 4)
            if missing or slab.data_ptr() % 4:
                slab = torch.nn.functional.pad(slab, (0, missing))
            # half words: the top bit of a whole one times any odd weight is the same, so two flipped signs would cancel
            words = slab.view(torch.int32).view(-1, min(CHUNK, slab.numel()) // 4)
            parts.append((words * weighed[: words.shape[1]]).sum(1))
        return torch.cat(parts)


@functools.cache
def fused() -> Kernel | None:
    """The kernel for the current device; None where it cannot be compiled or loaded."""
    try:
        return nvrtc.kernel("fingerprint_chunks")
    except Exception:  # whatever keeps it from running: torch's operators see the same, more slowly
        return None


def by_kernel(kernel: Kernel, stretches: Sequence[tuple[int, int]], device: str) -> list[torch.Tensor]:
    """Fingerprints by the kernel, on the current stream.

    Args:
        kernel: what `fused` returned.
        stretches: (address, bytes) of device memory, none empty.
        device: where that is.

    Returns: as `by_operators`, one for each of the stretches.
    """
    table, counts = chunks(stretches, device)
    marks = torch.empty(len(table), dtype=torch.int64, device=device)
    if len(table):
        kernel((len(table),), _THREADS, marks, table)
    return list(marks.split(counts))


def chunks(stretches: Sequence[tuple[int, int]], device: str) -> tuple[torch.Tensor, list[int]]:
    """((address, bytes) of all chunks: int64, shape (n, 2), on the device; the number of chunks of each stretch)."""
    counts = [-(-size // CHUNK) for _, size in stretches]
    # cut up on the device: for all of a GPU's memory these are a million rows
    where = torch.tensor(stretches, dtype=torch.int64, device="cpu").view(-1, 2).to(device)
    repeats = -(-where[:, 1] // CHUNK)
    each = torch.arange(len(stretches), device=device).repeat_interleave(repeats, output_size=sum(counts))
    first = repeats.cumsum(0) - repeats
    starts = (torch.arange(len(each), device=device) - first[each]) * CHUNK
    address, size = where[each].unbind(1)
    return torch.stack([address + starts, (size - starts).clamp(max=CHUNK)], dim=1), counts
