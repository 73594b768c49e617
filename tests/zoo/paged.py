"""The paged-cache decode step that several targets of the zoo share; not a target itself.

Float32 and no library kernels but two small GEMMs. Slot -1 is the last row of the caches (negative indices count from
the end): padding writes there, and nobody reads it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields

import torch

HIDDEN = 8
VOCAB = 32
BLOCK = 4
"""Tokens per cache block."""
BLOCKS = 4
"""Blocks per row."""
LENGTH = BLOCK * BLOCKS
"""Longest sequence; after it the row starts a new request."""
ROWS = 8
"""Widest batch."""


@dataclass
class Batch:
    """Inputs of one decode step, int64, rows in dimension 0."""

    tokens: torch.Tensor
    positions: torch.Tensor
    slot_mapping: torch.Tensor
    """Where the new keys and values go; -1 for padding."""
    block_table: torch.Tensor
    """Shape (rows, BLOCKS)."""
    seq_lens: torch.Tensor

    def rows(self, n: int) -> Batch:
        """Views of the first `n` rows."""
        return Batch(*(getattr(self, field.name)[:n] for field in fields(self)))

    def load(self, fresh: Batch) -> None:
        """Copy `fresh` into the leading rows and make the rows behind them safe padding."""
        n = len(fresh.tokens)
        self.slot_mapping.fill_(-1)
        self.seq_lens.zero_()
        for field in fields(self):
            getattr(self, field.name)[:n].copy_(getattr(fresh, field.name))


def schedule(step: int, n: int, device: str) -> Batch:
    """The truth of step `step`: `n` requests of different lengths, each one token further than the step before."""
    positions = [(step + 3 * row) % LENGTH for row in range(n)]
    tables = [[row * BLOCKS + (i + row) % BLOCKS for i in range(BLOCKS)] for row in range(n)]
    slots = [table[at // BLOCK] * BLOCK + at % BLOCK for table, at in zip(tables, positions, strict=True)]
    # Blocks that a request does not have yet are 0 in its table, as a block manager leaves them.
    owned = [[b if i * BLOCK <= at else 0 for i, b in enumerate(t)] for t, at in zip(tables, positions, strict=True)]

    def tensor(values: Iterable[int | list[int]]) -> torch.Tensor:
        return torch.tensor(list(values), dtype=torch.int64, device=device)

    tokens = tensor((7 * step + 5 * row + 1) % VOCAB for row in range(n))
    return Batch(tokens, tensor(positions), tensor(slots), tensor(owned), tensor(at + 1 for at in positions))


def padding(n: int, device: str) -> Batch:
    """`n` rows that write nothing that counts and read nothing."""
    zeros = torch.zeros(n, dtype=torch.int64, device=device)
    table = torch.zeros(n, BLOCKS, dtype=torch.int64, device=device)
    return Batch(zeros.clone(), zeros.clone(), torch.full_like(zeros, -1), table, zeros.clone())


class PagedDecoder:
    """Embedding, one attention layer over a paged cache, LM head, greedy choice."""

    def __init__(self, device: str, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)

        def weight(*shape: int) -> torch.Tensor:
            return (torch.randn(shape, generator=generator) / math.sqrt(shape[0])).to(device)

        self.device = device
        self.embedding = weight(VOCAB, HIDDEN) * math.sqrt(VOCAB)
        self.position_embedding = weight(LENGTH, HIDDEN) * math.sqrt(LENGTH)
        self.qkv = weight(HIDDEN, 3 * HIDDEN)
        self.head = weight(HIDDEN, VOCAB)
        self.k_cache = torch.zeros(ROWS * LENGTH + 1, HIDDEN, device=device)
        self.v_cache = torch.zeros_like(self.k_cache)

    def project(self, batch: Batch) -> tuple[torch.Tensor, ...]:
        """Residual, query, key and value, each (n, HIDDEN)."""
        x = self.embedding[batch.tokens] + self.position_embedding[batch.positions]
        return (x, *(x @ self.qkv).chunk(3, dim=-1))

    def attend(self, q: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Attention of each row over its blocks; NaN for rows of length 0."""
        within = torch.arange(BLOCK, device=self.device)
        slots = (batch.block_table[:, :, None] * BLOCK + within).flatten(1)
        scores = (q[:, None] * self.k_cache[slots]).sum(-1)
        unused = torch.arange(LENGTH, device=self.device) >= batch.seq_lens[:, None]
        weights = scores.masked_fill(unused, -torch.inf).softmax(-1)
        return (weights[..., None] * self.v_cache[slots]).sum(1)

    def choose(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        """Logits (n, VOCAB) and the greedy tokens (n,)."""
        logits = x @ self.head
        return {"logits": logits, "tokens": logits.argmax(-1)}

    def __call__(self, batch: Batch) -> dict[str, torch.Tensor]:
        """One decode step."""
        x, q, k, v = self.project(batch)
        self.k_cache[batch.slot_mapping] = k
        self.v_cache[batch.slot_mapping] = v
        return self.choose(x + self.attend(q, batch))

    def reset(self) -> None:
        """Empty caches, in place."""
        self.k_cache.zero_()
        self.v_cache.zero_()

    def state(self) -> dict[str, torch.Tensor]:
        """The caches, by name."""
        return {"k_cache": self.k_cache, "v_cache": self.v_cache}

    def reserved(self) -> dict[str, list[int]]:
        """The row that slot -1 means."""
        return {"k_cache": [ROWS * LENGTH], "v_cache": [ROWS * LENGTH]}


class PagedLoop:
    """A sound LoopTarget around the decoder; targets change the one thing that they are about."""

    def __init__(self, device: str, seed: int) -> None:
        self.buckets = [1, 2, 4]
        self.device = device
        self.decoder = PagedDecoder(device, seed)

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

    def state(self) -> dict[str, torch.Tensor]:
        """The caches."""
        return self.decoder.state()

    def reserved(self) -> dict[str, list[int]]:
        """The row that padding writes."""
        return self.decoder.reserved()
