"""A target in loop form: a decode step that can be called with any values. The doctor captures it and plays the runner.

It works as it stands; put your own model where it says REPLACE. All members: docs, "Writing a target".
"""

from __future__ import annotations

import torch

SLOTS, WIDTH, VOCABULARY = 8, 64, 256
PADDING_SLOT = SLOTS  # one more row of the state, which only padding rows may write


class Target:
    """The four required members are `buckets`, `next_inputs`, `forward` and `reset`; the others are optional."""

    buckets = (1, 2, 4, 8)  # REPLACE: the batch sizes that you capture, ascending

    def __init__(self, device: str, seed: int) -> None:
        # REPLACE: build your model. `device` is "cuda", or the emulated device on a machine without a GPU.
        weights = torch.Generator().manual_seed(seed)
        self.device = device
        self.embedding = torch.randn(VOCABULARY, WIDTH, generator=weights).to(device)
        self.head = torch.randn(WIDTH, VOCABULARY, generator=weights).to(device)
        self.memory = torch.zeros(SLOTS + 1, WIDTH, device=device)  # stands for a KV cache

    def next_inputs(self, step: int, n: int) -> dict[str, torch.Tensor]:
        """The true inputs of step `step` for `n` rows. Pure: the same answer each time, in whatever order one asks."""
        # REPLACE: what your scheduler would hand over. Played from recorded requests, or made up as here.
        tokens = torch.Generator().manual_seed(1000 * step + n)
        return {
            "tokens": torch.randint(VOCABULARY, (n,), generator=tokens).to(self.device),
            "slots": torch.arange(n, device=self.device),
        }

    def forward(self, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The decode step: reads the inputs, updates the state in place, returns outputs (rows in dimension 0)."""
        # REPLACE: call your model.
        slots = inputs["slots"]
        hidden = 0.5 * self.memory[slots] + self.embedding[inputs["tokens"]]
        self.memory[slots] = hidden
        logits = torch.tanh(hidden) @ self.head
        return {"logits": logits, "next_tokens": logits.argmax(dim=-1)}

    def reset(self) -> None:
        """Back to before step 0, in place: device and host state, seeds, counters."""
        self.memory.zero_()

    # From here on all is optional.

    def update(self, static: dict[str, torch.Tensor], fresh: dict[str, torch.Tensor]) -> None:
        """Fill the static buffers before a replay. Call your runner's own staging code here: it is what is tested."""
        n = len(fresh["tokens"])
        for name, buffer in static.items():
            buffer[:n].copy_(fresh[name])
        static["slots"][n:].fill_(PADDING_SLOT)  # else padding rows would write a live slot

    def state(self) -> dict[str, torch.Tensor]:
        """Names for the tensors that steps change."""
        return {"memory": self.memory}

    def reserved(self) -> dict[str, list[int]]:
        """Rows of the state that padding may write."""
        return {"memory": [PADDING_SLOT]}


def target(device: str, seed: int = 0) -> Target:
    """Called by the doctor. Further parameters are filled with --target-arg name=value."""
    return Target(device, seed)
