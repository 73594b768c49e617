"""transformers' StaticCache keeps its write position in a tensor of its own and advances it inside the step.

`cumulative_length` is neither argument nor result of the step. A careless tool restores keys and values between arms
but not this tensor, and then each arm writes one position further than the one before.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch

LENGTH, VOCAB = 1024, 128


class Llama:
    """A random LlamaForCausalLM of two layers, batch 1."""

    def __init__(self, device: str, seed: int) -> None:
        transformers: Any = importlib.import_module("transformers")
        self.buckets = [1]
        self.device = device
        torch.manual_seed(seed)
        config = transformers.LlamaConfig(
            vocab_size=VOCAB, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=LENGTH,
        )  # fmt: skip
        self.model = transformers.LlamaForCausalLM(config).to(device).eval()
        self.cache = transformers.StaticCache(config=config, max_cache_len=LENGTH)

    def next_inputs(self, step: int, n: int) -> dict[str, torch.Tensor]:
        """Token and position, both (1, 1)."""
        token = torch.full((n, 1), (11 * step + 3) % VOCAB, device=self.device)
        return {"input_ids": token, "position_ids": torch.full((n, 1), step % LENGTH, device=self.device)}

    @torch.no_grad()
    def forward(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """Logits of the next token, (1, VOCAB)."""
        result = self.model(**inputs, past_key_values=self.cache, use_cache=True)
        return torch.as_tensor(result.logits[:, -1])

    def reset(self) -> None:
        """Zeros in place: keys, values and the position."""
        self.cache.reset()


def target(device: str, seed: int = 0) -> Llama:
    """The target."""
    return Llama(device, seed)
