"""The decode step's custom operators, `torch.ops.cudagraph_doctor.*`: a CUDA kernel, a CPU form and a fake form each.

On CUDA everything is bf16 with float accumulation; on CPU float32 or bf16. Rows are requests, one token each. The CPU
forms are plain torch; they also serve as the reader's definition of what the kernels compute. They are registered bare:
`register_kernel` would import torch's compiler at the first call, a second of every run. Next on the path: `decode.py`,
the model made of these.
"""

# No `from __future__ import annotations` here: torch reads the schemas from the annotations.
import torch
from torch.library import custom_op

from cudagraph_doctor.reference_models.nvrtc import kernel

_VECTOR = 8
"""bf16 numbers in the 16 bytes that a thread loads at once."""


@custom_op("cudagraph_doctor::rms_norm", mutates_args=(), device_types="cuda")
def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """x / sqrt(mean(x^2) + eps) * weight. x (n, hidden), weight (hidden,) -> (n, hidden)."""
    _require_vectors("rms_norm", x, weight)
    _require_contiguous("rms_norm", weight)
    rows, hidden = x.shape
    out = torch.empty((rows, hidden), device=x.device, dtype=x.dtype)
    if rows:
        kernel("rms_norm")((rows,), _threads(hidden // _VECTOR), out, x, weight, hidden, x.stride(0), eps)
    return out


@torch.library.impl("cudagraph_doctor::rms_norm", "cpu")
def _(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


@rms_norm.register_fake
def _(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return torch.empty(x.shape, device=x.device, dtype=x.dtype)


@custom_op("cudagraph_doctor::rotary_embedding", mutates_args=("qk",), device_types="cuda")
def rotary_embedding(qk: torch.Tensor, positions: torch.Tensor, cos_sin: torch.Tensor, offset: int = 0) -> None:
    """Rotate query and key heads by their row's position, in place.

    qk (n, heads, head_dim), positions (n,) int64, cos_sin (longest, head_dim) float32: cosines, then sines.
    `offset` is added to all positions. It is a kernel argument *by value*: a capture freezes it.
    """
    _require_vectors("rotary_embedding", qk)
    _require_dtypes("rotary_embedding", (positions, torch.int64), (cos_sin, torch.float32))
    rows, heads, head_dim = qk.shape
    if rows:
        rotate = kernel("rotary_embedding", HEAD_DIM=head_dim)
        threads = _threads(heads * head_dim // 2 // _VECTOR)
        rotate((rows,), threads, qk, positions, cos_sin, heads, qk.stride(0), offset)


@torch.library.impl("cudagraph_doctor::rotary_embedding", "cpu")
def _(qk: torch.Tensor, positions: torch.Tensor, cos_sin: torch.Tensor, offset: int = 0) -> None:
    cos, sin = cos_sin[positions + offset].unsqueeze(1).chunk(2, dim=-1)
    first, second = qk.float().chunk(2, dim=-1)
    qk.copy_(torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1))


@rotary_embedding.register_fake
def _(qk: torch.Tensor, positions: torch.Tensor, cos_sin: torch.Tensor, offset: int = 0) -> None:
    return None


@custom_op("cudagraph_doctor::reshape_and_cache", mutates_args=("key_cache", "value_cache"), device_types="cuda")
def reshape_and_cache(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
) -> None:
    """Write each row's key and value to its slot. A negative slot (padding) writes nothing.

    key, value (n, kv_heads, head_dim); caches (blocks, block_size, kv_heads, head_dim); slot_mapping (n,) int32.
    """
    _require_vectors("reshape_and_cache", key, value, key_cache, value_cache)
    _require_contiguous("reshape_and_cache", key_cache, value_cache)
    _require_dtypes("reshape_and_cache", (slot_mapping, torch.int32))
    rows, heads, head_dim = key.shape
    width = heads * head_dim
    if rows:
        write = kernel("reshape_and_cache")
        strides = (key.stride(0), value.stride(0))
        write((rows,), _threads(width // _VECTOR), key, value, key_cache, value_cache, slot_mapping, width, *strides)


@torch.library.impl("cudagraph_doctor::reshape_and_cache", "cpu")
def _(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
) -> None:
    live = slot_mapping >= 0
    slots = slot_mapping[live].long()
    key_cache.flatten(0, 1)[slots] = key[live]
    value_cache.flatten(0, 1)[slots] = value[live]


@reshape_and_cache.register_fake
def _(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
) -> None:
    return None


@custom_op("cudagraph_doctor::paged_attention_decode", mutates_args=(), device_types="cuda")
def paged_attention_decode(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_table: torch.Tensor,
    seq_lens: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    """Attention of one query a row over the first seq_lens[row] tokens of the blocks in block_table[row].

    query (n, heads, head_dim), caches (blocks, block_size, kv_heads, head_dim), block_table (n, width) int32,
    seq_lens (n,) int32 -> (n, heads, head_dim). A row of length 0 gives zeros; a length beyond the table is cut to it.
    """
    _require_vectors("paged_attention_decode", query, key_cache, value_cache)
    _require_contiguous("paged_attention_decode", key_cache, value_cache)
    _require_dtypes("paged_attention_decode", (block_table, torch.int32), (seq_lens, torch.int32))
    rows, heads, head_dim = query.shape
    _, block_size, kv_heads, _ = key_cache.shape
    out = torch.empty((rows, heads, head_dim), device=query.device, dtype=query.dtype)
    if rows:
        attend = kernel("paged_attention_decode", HEAD_DIM=head_dim, GROUP=heads // kv_heads, BLOCK_SIZE=block_size)
        table = (block_table.stride(0), block_table.size(1))
        tensors = (out, query, key_cache, value_cache, block_table, seq_lens)
        attend((kv_heads, rows), 128, *tensors, query.stride(0), *table, scale)
    return out


@torch.library.impl("cudagraph_doctor::paged_attention_decode", "cpu")
def _(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_table: torch.Tensor,
    seq_lens: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    out = torch.zeros(query.shape, device=query.device, dtype=query.dtype)
    block_size, kv_heads = key_cache.shape[1:3]
    # Row by row, so that a row's result does not depend on its neighbours (as in the kernel).
    for row, length in enumerate(seq_lens.clamp(max=block_table.size(1) * block_size).tolist()):
        if length > 0:
            blocks = block_table[row, : -(-length // block_size)].long()
            keys = key_cache[blocks].flatten(0, 1)[:length].float().transpose(0, 1)
            values = value_cache[blocks].flatten(0, 1)[:length].float().transpose(0, 1)
            grouped = query[row].float().unflatten(0, (kv_heads, -1))
            out[row] = ((grouped @ keys.mT * scale).softmax(-1) @ values).flatten(0, 1)
    return out


@paged_attention_decode.register_fake
def _(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_table: torch.Tensor,
    seq_lens: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    return torch.empty(query.shape, device=query.device, dtype=query.dtype)


@custom_op("cudagraph_doctor::silu_and_mul", mutates_args=(), device_types="cuda")
def silu_and_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """silu(gate) * up. gate_up (n, 2 * width), gate first, contiguous -> (n, width)."""
    _require_vectors("silu_and_mul", gate_up)
    _require_contiguous("silu_and_mul", gate_up)
    rows, width = gate_up.size(0), gate_up.size(1) // 2
    out = torch.empty((rows, width), device=gate_up.device, dtype=gate_up.dtype)
    if rows:
        threads = _threads(width // _VECTOR, most=256)
        kernel("silu_and_mul")((-(-width // (threads * _VECTOR)), rows), threads, out, gate_up, width)
    return out


@torch.library.impl("cudagraph_doctor::silu_and_mul", "cpu")
def _(gate_up: torch.Tensor) -> torch.Tensor:
    gate, up = gate_up.float().chunk(2, dim=-1)
    return (torch.nn.functional.silu(gate) * up).to(gate_up.dtype)


@silu_and_mul.register_fake
def _(gate_up: torch.Tensor) -> torch.Tensor:
    return torch.empty((gate_up.size(0), gate_up.size(1) // 2), device=gate_up.device, dtype=gate_up.dtype)


def _threads(vectors: int, most: int = 1024) -> int:
    """Threads of a block that has `vectors` vectors to work on: whole warps, at most `most`."""
    return min(most, -(-vectors // 32) * 32)


def _require_vectors(operator: str, *tensors: torch.Tensor) -> None:
    """The kernels move 16 bytes at a time: bf16, and every row is contiguous and starts on such a boundary."""
    for tensor in tensors:
        if tensor.dtype is not torch.bfloat16:
            raise TypeError(f"{operator} on CUDA takes bfloat16, not {tensor.dtype}")
        inner = 1
        fits = tensor.data_ptr() % 16 == 0 and tensor.size(-1) % _VECTOR == 0
        for size, stride in zip(reversed(tensor.shape[1:]), reversed(tensor.stride()[1:]), strict=True):
            fits = fits and (stride == inner or size == 1)
            inner *= size
        if not fits or (tensor.dim() > 1 and tensor.stride(0) % _VECTOR):
            raise ValueError(
                f"{operator} needs contiguous rows that start at multiples of 16 bytes, "
                f"not shape {tuple(tensor.shape)}, strides {tensor.stride()}, address {tensor.data_ptr():#x}"
            )


def _require_contiguous(operator: str, *tensors: torch.Tensor) -> None:
    for tensor in tensors:
        if not tensor.is_contiguous():
            raise ValueError(f"{operator} needs a contiguous tensor, not strides {tensor.stride()}")


def _require_dtypes(operator: str, *expected: tuple[torch.Tensor, torch.dtype]) -> None:
    for tensor, dtype in expected:
        if tensor.dtype is not dtype or (tensor.stride(-1) != 1 and tensor.size(-1) > 1):
            raise TypeError(
                f"{operator} takes contiguous rows of {dtype}, not {tensor.dtype} of strides {tensor.stride()}"
            )
