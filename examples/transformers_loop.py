"""A transformers decode loop captured by hand: a random LlamaForCausalLM, a StaticCache, one graph.

Needs a GPU. Run `cudagraph-doctor diff examples/transformers_loop.py`.
"""

from __future__ import annotations

import torch
from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

BATCH, LENGTH, VOCAB = 2, 256, 512
SHAPE = {
    "vocab_size": VOCAB, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": LENGTH,
}  # fmt: skip


class Loop:
    """Greedy decoding of BATCH requests at one position, from a first token on."""

    batch_sizes = (BATCH,)

    def __init__(self, device: str, seed: int = 0) -> None:
        torch.manual_seed(seed)
        config = LlamaConfig(**SHAPE)
        self.model = LlamaForCausalLM(config).to(device).eval()
        self.cache = StaticCache(config=config, max_cache_len=LENGTH)
        self.input_ids = torch.zeros(BATCH, 1, dtype=torch.int64, device=device)
        self.position_ids = torch.zeros(BATCH, 1, dtype=torch.int64, device=device)
        self.position = 0
        self.use_graph = True
        self.reset()
        self.capture()

    @torch.no_grad()
    def forward(self) -> torch.Tensor:
        """Logits of the next token, (BATCH, VOCAB). The cache moves its own write position on."""
        result = self.model(
            input_ids=self.input_ids, position_ids=self.position_ids, past_key_values=self.cache, use_cache=True
        )
        return torch.as_tensor(result.logits[:, -1])

    def capture(self) -> None:
        """Warm up on a side stream, capture, and start over: both steps have moved the cache."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.forward()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.output = self.forward()
        self.reset()

    def reset(self) -> None:
        """Empty cache, first tokens, position 0."""
        self.cache.reset()
        self.input_ids.copy_(torch.arange(1, BATCH + 1)[:, None])
        self.position = 0

    def graphs(self, on: bool) -> None:
        """The switch."""
        self.use_graph = on

    def stage(self) -> None:
        """What is not on the device already: the position."""
        self.position_ids.fill_(self.position)

    def advance(self, logits: torch.Tensor) -> None:
        """The greedy token is the next input."""
        self.input_ids.copy_(logits.argmax(-1, keepdim=True))
        self.position += 1

    def step(self, i: int, n: int) -> torch.Tensor:
        """One token for each request."""
        self.stage()
        if self.use_graph:
            self.graph.replay()
            logits = self.output.clone()
        else:
            logits = self.forward()
        self.advance(logits)
        return logits

    def recapture(self) -> None:
        """Captures anew without losing the place: tokens, position and cache are put back afterwards."""
        kept = [(tensor, tensor.clone()) for tensor in self.device_state()]
        position = self.position
        self.capture()
        self.position = position
        for tensor, value in kept:
            tensor.copy_(value)

    def device_state(self) -> list[torch.Tensor]:
        """All that a step changes on the device."""
        layers = self.cache.layers
        return [self.input_ids, *(t for layer in layers for t in (layer.keys, layer.values, layer.cumulative_length))]


target = Loop
