"""Operators with a number of the host's in their launch: as an argument, in a descriptor, in the grid.

A capture freezes all three. The sound model uses none of them; the faults in `faulty_values.py` do. As in
`operators.py`, the kernels are for bf16, and the CPU forms are plain torch.
"""

# No `from __future__ import annotations` here: torch reads the schemas from the annotations.
import struct

import torch
from torch.library import custom_op

from cudagraph_doctor.reference_models.nvrtc import kernel

SPLIT_TOKENS = 16
"""Tokens of a context that one block of `key_amax` looks at."""


@custom_op("cudagraph_doctor::scale_rows", mutates_args=(), device_types="cuda")
def scale_rows(x: torch.Tensor, scale: float) -> torch.Tensor:
    """x * scale, by a Triton kernel that is given `scale` by value. x contiguous -> the same shape."""
    from cudagraph_doctor.reference_models import triton_kernels

    out = torch.empty_like(x)
    block = 1024
    triton_kernels.scale_rows[(-(-x.numel() // block),)](out, x, scale, x.numel(), BLOCK=block)
    return out


@torch.library.impl("cudagraph_doctor::scale_rows", "cpu")
def _(x: torch.Tensor, scale: float) -> torch.Tensor:
    return x * scale


@scale_rows.register_fake
def _(x: torch.Tensor, scale: float) -> torch.Tensor:
    return torch.empty_like(x)


@custom_op("cudagraph_doctor::load_rows", mutates_args=(), device_types="cuda")
def load_rows(x: torch.Tensor, rows: int) -> torch.Tensor:
    """The first `rows` rows of x, zeros for the others: through a descriptor made here. x (n, width), contiguous."""
    out = torch.empty_like(x)
    if len(x):
        pitch = x.stride(0) * x.element_size()
        descriptor = struct.pack("<QQ112x", x.data_ptr(), pitch << 32 | rows)
        kernel("load_rows")((len(x),), 128, descriptor, out, x.size(1))
    return out


@torch.library.impl("cudagraph_doctor::load_rows", "cpu")
def _(x: torch.Tensor, rows: int) -> torch.Tensor:
    out = torch.zeros_like(x)
    out[:rows] = x[:rows]
    return out


@load_rows.register_fake
def _(x: torch.Tensor, rows: int) -> torch.Tensor:
    return torch.empty_like(x)


@custom_op("cudagraph_doctor::key_amax", mutates_args=(), device_types="cuda")
def key_amax(
    key_cache: torch.Tensor, block_table: torch.Tensor, seq_lens: torch.Tensor, splits: int, strided: bool
) -> torch.Tensor:
    """The largest |key| of each channel in each row's context, by `splits` blocks a row.

    Without `strided` a block looks at `SPLIT_TOKENS` tokens and no further, so that `splits` bounds the context; with
    it any number will do, and gives the same bits. Shapes as in `operators.paged_attention_decode`; out is
    (n, kv_heads * head_dim) float32.
    """
    width = key_cache.size(2) * key_cache.size(3)
    out = torch.zeros(len(seq_lens), width, device=key_cache.device, dtype=torch.float32)
    if len(seq_lens):
        launch = kernel("key_amax", BLOCK_SIZE=key_cache.size(1), SPLIT=SPLIT_TOKENS, STRIDED=int(strided))
        table = (block_table.stride(0), block_table.size(1))
        launch((splits, len(seq_lens)), 32, out, key_cache, block_table, seq_lens, width, *table)
    return out


@torch.library.impl("cudagraph_doctor::key_amax", "cpu")
def _(
    key_cache: torch.Tensor, block_table: torch.Tensor, seq_lens: torch.Tensor, splits: int, strided: bool
) -> torch.Tensor:
    out = torch.zeros(len(seq_lens), key_cache[0, 0].numel(), device=key_cache.device, dtype=torch.float32)
    most = block_table.size(1) * key_cache.size(1)
    for row, length in enumerate(seq_lens.clamp(max=most if strided else min(most, splits * SPLIT_TOKENS)).tolist()):
        if length > 0:
            keys = key_cache[block_table[row].long()].flatten(0, 1)[:length]
            out[row] = keys.flatten(1).float().abs().amax(dim=0)
    return out


@key_amax.register_fake
def _(
    key_cache: torch.Tensor, block_table: torch.Tensor, seq_lens: torch.Tensor, splits: int, strided: bool
) -> torch.Tensor:
    return torch.empty(len(seq_lens), key_cache[0, 0].numel(), device=key_cache.device, dtype=torch.float32)
