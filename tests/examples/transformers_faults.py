"""Three faults in the transformers loop: buffers and weights that are rebound where they should be written in place."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import transformers_loop as sound


class PositionRebound(sound.Loop):
    """A new position tensor each step: eager reads it, the graph reads the first one for ever."""

    def stage(self) -> None:
        """Rebinds."""
        self.position_ids = torch.full_like(self.position_ids, self.position)


class TokensRebound(sound.Loop):
    """The next tokens are a new tensor: the graph goes on from the first ones for ever."""

    def advance(self, logits: torch.Tensor) -> None:
        """Rebinds."""
        self.input_ids = logits.argmax(-1, keepdim=True)
        self.position += 1


class HeadReplaced(sound.Loop):
    """New weights are assigned after the capture instead of being copied into the old ones."""

    def __init__(self, device: str, seed: int = 0) -> None:
        super().__init__(device, seed)
        self.model.lm_head.weight = torch.nn.Parameter(self.model.lm_head.weight.detach() * -1.5)


FAULTS = {"position_ids": PositionRebound, "input_ids": TokensRebound, "lm_head": HeadReplaced}


def target(device: str, fault: str, seed: int = 0) -> sound.Loop:
    """The loop with one of the faults."""
    return FAULTS[fault](device, seed)
