"""Keys and values are stored by a raw Triton kernel, which no dispatcher sees.

A careless tool that finds state by watching dispatched operators never learns that the cache is written: it does not
restore it between arms, and reports the difference as the graph's fault.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .paged import HIDDEN, Batch, PagedDecoder, padding, schedule


@triton.jit  # type: ignore[untyped-decorator]
def store_kernel(k, v, stride, k_cache, v_cache, slot_mapping, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0)
    slot = tl.load(slot_mapping + row)
    if slot >= 0:
        columns = tl.arange(0, WIDTH)
        tl.store(k_cache + slot * WIDTH + columns, tl.load(k + row * stride + columns))
        tl.store(v_cache + slot * WIDTH + columns, tl.load(v + row * stride + columns))


class TritonDecoder(PagedDecoder):
    """Writes nothing at all for slot -1."""

    def __call__(self, batch: Batch) -> dict[str, torch.Tensor]:
        """One decode step."""
        x, q, k, v = self.project(batch)
        arguments = (k, v, k.stride(0), self.k_cache, self.v_cache, batch.slot_mapping)
        store_kernel[(len(k),)](*arguments, WIDTH=HIDDEN)
        return self.choose(x + self.attend(q, batch))


class RawTriton:
    """No `state()`: what the kernel writes has to be found."""

    def __init__(self, device: str, seed: int) -> None:
        self.buckets = [1, 2, 4]
        self.device = device
        self.decoder = TritonDecoder(device, seed)

    def next_inputs(self, step: int, n: int) -> Batch:
        """The truth of one step."""
        return schedule(step, n, self.device)

    def static_inputs(self, bucket: int) -> Batch:
        """Buffers of safe padding."""
        return padding(bucket, self.device)

    def update(self, static: Batch, fresh: Batch) -> None:
        """Stage a step, with safe padding behind it."""
        static.load(fresh)

    def forward(self, inputs: Batch) -> dict[str, torch.Tensor]:
        """One decode step."""
        return self.decoder(inputs)

    def reset(self) -> None:
        """Empty caches."""
        self.decoder.reset()


def target(device: str, seed: int = 0) -> RawTriton:
    """The target."""
    return RawTriton(device, seed)
