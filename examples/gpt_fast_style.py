"""A hand-written loop in the style of gpt-fast: static caches, a position tensor, eager prefill, captured decode.

Batch 1, random weights. `Generator.decode` is the loop's own runner; the target at the end lets the doctor play it.
Run `cudagraph-doctor diff examples/gpt_fast_style.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

VOCAB, WIDTH, HEADS, LAYERS, LENGTH, PROMPT = 256, 64, 4, 2, 128, 16


class Attention(nn.Module):
    """Causal attention with caches of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)

    def setup_cache(self, device: str) -> None:
        """Empty caches, (1, HEADS, LENGTH, head)."""
        shape = (1, HEADS, LENGTH, WIDTH // HEADS)
        self.k_cache = torch.zeros(shape, device=device)
        self.v_cache = torch.zeros(shape, device=device)

    def forward(self, x: torch.Tensor, input_pos: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Tokens (1, T, WIDTH) at the positions `input_pos` (T,)."""
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        self.k_cache.index_copy_(2, input_pos, k)
        self.v_cache.index_copy_(2, input_pos, v)
        y = functional.scaled_dot_product_attention(q, self.k_cache, self.v_cache, attn_mask=mask)
        return torch.as_tensor(self.out(y.transpose(1, 2).flatten(2)))


class Block(nn.Module):
    """Attention and feed-forward, pre-normalised."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention()
        self.feed_forward = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.SiLU(), nn.Linear(4 * WIDTH, WIDTH))
        self.norms = nn.ModuleList(nn.RMSNorm(WIDTH) for _ in range(2))

    def forward(self, x: torch.Tensor, input_pos: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """(1, T, WIDTH) to the same."""
        x = x + self.attention(self.norms[0](x), input_pos, mask)
        return x + torch.as_tensor(self.feed_forward(self.norms[1](x)))


class Transformer(nn.Module):
    """Embedding, blocks, head."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, WIDTH)
        self.positions = nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)
        self.causal = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril().to(device)
        self.to(device)
        self.setup_caches(device)

    def setup_caches(self, device: str) -> None:
        """Empty caches in all layers."""
        for attention in self.attentions():
            attention.setup_cache(device)

    def attentions(self) -> list[Attention]:
        """The attention layers, first to last."""
        return [module for module in self.modules() if isinstance(module, Attention)]

    def forward(self, token: torch.Tensor, input_pos: torch.Tensor) -> torch.Tensor:
        """Logits (T, VOCAB) after each token of `token` (T,) at `input_pos` (T,)."""
        mask = self.causal[None, None, input_pos]
        x = (self.embedding(token) + self.positions(input_pos))[None]
        for block in self.blocks:
            x = block(x, input_pos, mask)
        return torch.as_tensor(self.head(x)[0])


@torch.no_grad()
def probabilities(
    model: Transformer, token: torch.Tensor, input_pos: torch.Tensor, temperature: torch.Tensor | float
) -> torch.Tensor:
    """Of the next token, (T, VOCAB): the step that is captured, with T = 1."""
    return torch.softmax(model(token, input_pos) / temperature, dim=-1)


class Generator:
    """Decodes one token at a time through one graph, captured once."""

    def __init__(self, model: Transformer, device: str) -> None:
        self.model = model
        self.static = {
            "token": torch.zeros(1, dtype=torch.int64, device=device),
            "input_pos": torch.zeros(1, dtype=torch.int64, device=device),
            "temperature": torch.ones(1, device=device),
        }
        self.capture()

    def capture(self) -> None:
        """Warm up on a side stream and capture."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            probabilities(self.model, **self.static)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.output = probabilities(self.model, **self.static)

    def stage(self, fresh: dict[str, torch.Tensor]) -> None:
        """Copy a step's values in."""
        for name, buffer in self.static.items():
            buffer.copy_(fresh[name])

    def decode(self, fresh: dict[str, torch.Tensor]) -> torch.Tensor:
        """One step: stage, replay."""
        self.stage(fresh)
        self.graph.replay()
        return self.output.clone()


class GptFast:
    """The target: eager is the same function on fresh values, the graph is `Generator`'s own."""

    def __init__(self, device: str, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.buckets = [1]
        self.device = device
        self.model = Transformer(device)

    def next_inputs(self, step: int, n: int) -> dict[str, torch.Tensor]:
        """Token, position and temperature of one request, after its prompt."""
        return {
            "token": torch.tensor([(37 * step + 5) % VOCAB], device=self.device),
            "input_pos": torch.tensor([PROMPT + step % (LENGTH - PROMPT)], device=self.device),
            "temperature": torch.tensor([1.0 + 0.25 * (step % 3)], device=self.device),
        }

    def forward(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """The step, eagerly."""
        return probabilities(self.model, **inputs)

    def graphed(self) -> Callable[[dict[str, torch.Tensor]], torch.Tensor]:
        """A generator of its own each time."""
        return Generator(self.model, self.device).decode

    def reset(self) -> None:
        """Empty caches, in place since graphs hold their addresses; then the prompt, eagerly."""
        for attention in self.model.attentions():
            attention.k_cache.zero_()
            attention.v_cache.zero_()
        prompt = torch.arange(PROMPT, device=self.device)
        probabilities(self.model, 3 * prompt + 1, prompt, 1.0)


target = GptFast
