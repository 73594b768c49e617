"""A target in engine form: an engine with its own staging, captures and replays, driven through its own entry point.

It works as it stands; put your own engine where it says REPLACE. All members: docs, "Writing a target".
"""

from __future__ import annotations

import torch

BUCKETS = (1, 2, 4, 8)
SLOTS, WIDTH, VOCABULARY = 8, 64, 256
PADDING_SLOT = SLOTS  # one more row of the state, which only padding rows may write


class Engine:
    """REPLACE: this class stands for your engine. It captures one graph a bucket and stages inputs before a replay."""

    def __init__(self, device: str, seed: int) -> None:
        weights = torch.Generator().manual_seed(seed)
        self.device = device
        self.embedding = torch.randn(VOCABULARY, WIDTH, generator=weights).to(device)
        self.head = torch.randn(WIDTH, VOCABULARY, generator=weights).to(device)
        self.memory = torch.zeros(SLOTS + 1, WIDTH, device=device)  # stands for a KV cache
        self.tokens = torch.zeros(BUCKETS[-1], dtype=torch.long, device=device)
        self.slots = torch.full((BUCKETS[-1],), PADDING_SLOT, device=device)
        self.enforce_eager = False
        self.captured: dict[int, tuple[torch.cuda.CUDAGraph, torch.Tensor]] = {}
        self.capture()

    def model(self, tokens: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
        """The decode step: logits, one row a sequence."""
        hidden = 0.5 * self.memory[slots] + self.embedding[tokens]
        self.memory[slots] = hidden
        return torch.tanh(hidden) @ self.head

    def capture(self) -> None:
        """Capture from large to small, all graphs in one pool."""
        self.slots.fill_(PADDING_SLOT)
        pool = None
        for bucket in reversed(BUCKETS):
            tokens, slots = self.tokens[:bucket], self.slots[:bucket]
            self.model(tokens, slots)  # warm up
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                logits = self.model(tokens, slots)
            pool = pool or graph.pool()
            self.captured[bucket] = graph, logits

    def decode(self, tokens: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
        """One step for the sequences in `slots`."""
        n = len(tokens)
        if self.enforce_eager or n > BUCKETS[-1]:
            return self.model(tokens, slots)
        bucket = next(size for size in BUCKETS if size >= n)
        self.tokens[:n].copy_(tokens)
        self.slots[:n].copy_(slots)
        self.slots[n:].fill_(PADDING_SLOT)
        graph, logits = self.captured[bucket]
        graph.replay()
        return logits[:n]


class Target:
    """The adapter. Three members are required: `reset`, `step` and `graphs`; the others are optional."""

    batch_sizes = (1, 2, 3, 4, 7, 8)

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def reset(self) -> None:
        """Back to before step 0, in place: device and host state, seeds, counters."""
        self.engine.memory.zero_()

    def step(self, i: int, n: int) -> dict[str, torch.Tensor]:
        """Decode step `i` on `n` rows, through the engine's own entry point. The same inputs each time it is asked."""
        # REPLACE: hand the engine what its scheduler would: played from recorded requests, or made up as here.
        random = torch.Generator().manual_seed(1000 * i + n)
        tokens = torch.randint(VOCABULARY, (n,), generator=random).to(self.engine.device)
        logits = self.engine.decode(tokens, torch.arange(n, device=self.engine.device))
        return {"logits": logits, "next_tokens": logits.argmax(dim=-1)}

    def graphs(self, on: bool) -> None:
        """The engine's enforce-eager switch."""
        self.engine.enforce_eager = not on

    # From here on all is optional.

    def roots(self) -> dict[str, object]:
        """Where tensors are looked for; their attribute paths become their names."""
        return {"engine": self.engine}

    def key(self, i: int, n: int) -> int | None:
        """What the engine looks the graph of this step up by; None: no graph serves it."""
        return next((size for size in BUCKETS if size >= n), None)

    def recapture(self) -> None:
        """Capture all graphs anew, as at start-up."""
        self.engine.capture()

    def reserved(self) -> dict[str, list[int]]:
        """State rows that only padding rows write, by path from the roots: there graph and eager may differ."""
        return {"engine.memory": [PADDING_SLOT]}


def target(device: str, seed: int = 0) -> Target:
    """Called by the doctor. Further parameters are filled with --target-arg name=value."""
    return Target(Engine(device, seed))
