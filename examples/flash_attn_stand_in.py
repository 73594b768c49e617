"""Stands in for flash-attn where that is not installed: the two functions that nano-vllm calls, in plain torch.

For small shapes only. The decode function can be captured: it reads nothing on the host, no shape depends on a value.
"""

from __future__ import annotations

import itertools

import torch
from torch.nn import functional


def flash_attn_varlen_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    cu_seqlens_q: torch.Tensor,
    softmax_scale: float,
    block_table: torch.Tensor | None = None,
    **_: object,
) -> torch.Tensor:
    """Causal attention of whole prompts, each over itself.

    Args:
        q: queries, (tokens, heads, head); `k` and `v` alike, with fewer heads.
        cu_seqlens_q: where each prompt starts and ends, (prompts + 1,).
        softmax_scale: factor on the scores.
        block_table: must be None: prefixes from the cache are not supported.

    Raises:
        NotImplementedError: a block table is given.
    """
    if block_table is not None:
        raise NotImplementedError("the stand-in for flash-attn has no prefix cache: install flash-attn for that")
    outputs = []
    ends = cu_seqlens_q.tolist()
    for start, end in itertools.pairwise(ends):
        queries, keys, values = (x[start:end].transpose(0, 1)[None] for x in (q, k, v))
        out = functional.scaled_dot_product_attention(
            queries, keys, values, is_causal=True, scale=softmax_scale, enable_gqa=True
        )
        outputs.append(out[0].transpose(0, 1))
    return torch.cat(outputs)


def flash_attn_with_kvcache(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    *,
    cache_seqlens: torch.Tensor,
    block_table: torch.Tensor,
    softmax_scale: float,
    **_: object,
) -> torch.Tensor:
    """Attention of one query a row over its pages; 0 for rows of length 0, as flash-attn gives.

    Args:
        q: queries, (rows, 1, heads, head).
        k_cache: pages of keys, (pages, page size, key heads, head); `v_cache` alike.
        cache_seqlens: tokens of each row, (rows,).
        block_table: pages of each row, (rows, most pages); what lies behind a row's length is never used.
        softmax_scale: factor on the scores.
    """
    pages = block_table.long().clamp(min=0)
    keys, values = (cache[pages].flatten(1, 2).float()[:, :, :, None] for cache in (k_cache, v_cache))
    rows, tokens, key_heads = keys.shape[:3]
    grouped = q.float().view(rows, 1, key_heads, -1, q.shape[-1])
    scores = (grouped * keys).sum(-1) * softmax_scale  # (rows, tokens, key heads, heads for each of them)
    unused = torch.arange(tokens, device=q.device) >= cache_seqlens[:, None]
    weights = scores.masked_fill(unused[..., None, None], -torch.inf).softmax(1).nan_to_num()
    return (weights[..., None] * values).sum(1).view(q.shape).to(q.dtype)
