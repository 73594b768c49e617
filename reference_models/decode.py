"""A small LLaMA-style decoder, decode step only: one new token a request, keys and values in a paged cache.

Read downwards: configuration, the blocks, the model. Everything that changes from step to step comes in through
`DecodeInputs` (`inputs.py`); the caches are the only state. Next on the path: `loop.py` and `engine.py`, which run it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from cudagraph_doctor.reference_models import operators as ops
from cudagraph_doctor.reference_models.inputs import DecodeInputs
from cudagraph_doctor.reference_models.requests import BLOCK_SIZE, LONGEST_REQUEST


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """Sizes of a decoder."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    num_blocks: int = 48
    """Blocks of the paged cache. The last one is never given to a request: padding may be pointed at it."""
    rms_eps: float = 1e-6
    rope_base: float = 10_000.0


PRESETS = {
    "tiny": DecoderConfig(64, 32, 64, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=16),
    "default": DecoderConfig(1024, 256, 512, num_layers=4, num_heads=4, num_kv_heads=2, head_dim=64),
    "large": DecoderConfig(8192, 256, 768, num_layers=147, num_heads=4, num_kv_heads=2, head_dim=64),
}
"""`tiny` for tests, `default`, and `large`, whose step launches about as many kernels (1,770) as a 397B model's."""


class RMSNorm(nn.Module):
    """Root-mean-square norm over the last dimension."""

    def __init__(self, hidden_size: int, eps: float, device: str, dtype: torch.dtype) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(hidden_size, device=device, dtype=dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, hidden) -> (n, hidden)."""
        normed: torch.Tensor = ops.rms_norm(x, self.weight, self.eps)
        return normed


class Rotary(nn.Module):
    """Rotary embedding by position, from a table."""

    cos_sin: torch.Tensor

    def __init__(self, config: DecoderConfig, device: str) -> None:
        super().__init__()
        dims = torch.arange(0, config.head_dim, 2, device=device, dtype=torch.float32)
        positions = torch.arange(LONGEST_REQUEST, device=device, dtype=torch.float32)
        angles = torch.outer(positions, config.rope_base ** (-dims / config.head_dim))
        self.register_buffer("cos_sin", torch.cat((angles.cos(), angles.sin()), dim=-1), persistent=False)

    def forward(self, qk: torch.Tensor, inputs: DecodeInputs) -> None:
        """Rotate the heads of qk (n, heads, head_dim) in place."""
        ops.rotary_embedding(qk, inputs.positions, self.cos_sin)


class Attention(nn.Module):
    """Grouped-query attention of the new tokens over the paged cache, which they join first."""

    key_cache: torch.Tensor
    value_cache: torch.Tensor

    def __init__(self, config: DecoderConfig, rotary: Rotary, device: str, dtype: torch.dtype) -> None:
        super().__init__()
        self.heads = [config.num_heads, config.num_kv_heads, config.num_kv_heads]
        self.head_dim = config.head_dim
        self.scale = config.head_dim**-0.5
        self.qkv = linear(config.hidden_size, sum(self.heads) * config.head_dim, device, dtype)
        self.o_proj = linear(config.num_heads * config.head_dim, config.hidden_size, device, dtype)
        self.rotary = rotary
        cache = (config.num_blocks, BLOCK_SIZE, config.num_kv_heads, config.head_dim)
        self.register_buffer("key_cache", torch.zeros(cache, device=device, dtype=dtype), persistent=False)
        self.register_buffer("value_cache", torch.zeros(cache, device=device, dtype=dtype), persistent=False)

    def forward(self, hidden: torch.Tensor, inputs: DecodeInputs) -> torch.Tensor:
        """(n, hidden) -> (n, hidden); writes the caches at `slot_mapping`."""
        qkv = self.qkv(hidden).unflatten(-1, (-1, self.head_dim))
        query, key, value = qkv.split(self.heads, dim=1)
        self.rotary(qkv[:, : -self.heads[-1]], inputs)  # query and key lie side by side
        ops.reshape_and_cache(key, value, self.key_cache, self.value_cache, inputs.slot_mapping)
        out = ops.paged_attention_decode(
            query, self.key_cache, self.value_cache, inputs.block_table, inputs.seq_lens, self.scale
        )
        projected: torch.Tensor = self.o_proj(out.flatten(1))
        return projected


class MLP(nn.Module):
    """SwiGLU."""

    def __init__(self, config: DecoderConfig, device: str, dtype: torch.dtype) -> None:
        super().__init__()
        self.gate_up = linear(config.hidden_size, 2 * config.intermediate_size, device, dtype)
        self.down = linear(config.intermediate_size, config.hidden_size, device, dtype)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """(n, hidden) -> (n, hidden)."""
        down: torch.Tensor = self.down(ops.silu_and_mul(self.gate_up(hidden)))
        return down


class DecoderLayer(nn.Module):
    """Attention and MLP, each behind a norm and added to the stream."""

    def __init__(self, config: DecoderConfig, rotary: Rotary, device: str, dtype: torch.dtype) -> None:
        super().__init__()
        self.input_norm = RMSNorm(config.hidden_size, config.rms_eps, device, dtype)
        self.attn = Attention(config, rotary, device, dtype)
        self.post_attn_norm = RMSNorm(config.hidden_size, config.rms_eps, device, dtype)
        self.mlp = MLP(config, device, dtype)

    def forward(self, hidden: torch.Tensor, inputs: DecodeInputs) -> torch.Tensor:
        """(n, hidden) -> (n, hidden)."""
        hidden = hidden + self.attn(self.input_norm(hidden), inputs)
        hidden = hidden + self.mlp(self.post_attn_norm(hidden))
        return hidden


class Decoder(nn.Module):
    """The model: next-token logits of one decode step, and the greedy tokens.

    Args:
        config: sizes.
        device: where weights and caches lie.
        dtype: bf16 on CUDA (the kernels take nothing else); float32 or bf16 on a CPU.
        seed: of the weights.
    """

    def __init__(self, config: DecoderConfig, device: str, dtype: torch.dtype, seed: int) -> None:
        super().__init__()
        rotary = Rotary(config, device)
        self.embed = nn.Embedding(config.vocab_size, config.hidden_size, device=device, dtype=dtype)
        self.layers = nn.ModuleList(DecoderLayer(config, rotary, device, dtype) for _ in range(config.num_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_eps, device, dtype)
        self.lm_head = linear(config.hidden_size, config.vocab_size, device, dtype)
        self.requires_grad_(False)
        self._seed_weights(torch.Generator(device).manual_seed(seed))
        self.reset_caches(seed)

    def forward(self, inputs: DecodeInputs) -> dict[str, torch.Tensor]:
        """One decode step: {"logits": (n, vocab), "tokens": (n,) int64}."""
        hidden = self.embed(inputs.input_ids)
        for layer in self.layers:
            hidden = layer(hidden, inputs)
        logits = self.lm_head(self.norm(hidden))
        return {"logits": logits, "tokens": logits.argmax(dim=-1)}

    def caches(self) -> dict[str, torch.Tensor]:
        """The state, by name: "layers.0.attn.key_cache", ..."""
        # asked before each replay: `named_buffers` would look into every module for it
        layers = [(f"layers.{i}.attn", layer.attn) for i, layer in enumerate(self.layers)]
        return {f"{path}.{kind}": getattr(attn, kind) for path, attn in layers for kind in ("key_cache", "value_cache")}

    def reset_caches(self, seed: int) -> None:
        """Fill the caches in place with seeded noise, so that every slot holds what somebody may have written."""
        generator = torch.Generator(next(self.parameters()).device).manual_seed(seed)
        for cache in self.caches().values():
            cache.normal_(generator=generator)

    def _seed_weights(self, generator: torch.Generator) -> None:
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                fan_in = 1 if name == "embed.weight" else weight.size(1)
                weight.normal_(0.0, fan_in**-0.5, generator=generator)


def linear(inputs: int, outputs: int, device: str, dtype: torch.dtype) -> nn.Linear:
    """A projection without a bias: a cuBLAS GEMM."""
    return nn.Linear(inputs, outputs, bias=False, device=device, dtype=dtype)
