"""Inputs and outputs nested in dataclasses, named tuples, lists and dicts, with empty tensors, None, strings and enums.

A careless tool stops at the first level, loses a leaf, takes a field that is None in one and not in the other form
for a change, or divides by the number of elements of an empty tensor.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import torch

HIDDEN, WIDEST = 8, 4


class Mode(Enum):
    """What kind of step it is."""

    DECODE = "decode"


class Heads(NamedTuple):
    """Two projections of a row."""

    left: torch.Tensor
    right: torch.Tensor


@dataclass(frozen=True)
class Inputs:
    """One step; `adapters` has no columns, since no adapter is loaded."""

    hidden: list[torch.Tensor]
    adapters: torch.Tensor
    mode: Mode = Mode.DECODE
    label: str = "decode"
    bias: torch.Tensor | None = None


@dataclass(slots=True)
class Outputs:
    """Leaves at several depths."""

    heads: Heads
    by_name: dict[str, list[torch.Tensor]]
    adapters: torch.Tensor
    nothing: None = None


class Nested:
    """Elementwise arithmetic between nested things."""

    def __init__(self, device: str, seed: int) -> None:
        self.buckets = [1, 2, WIDEST]
        self.device = device
        self.scale = torch.randn(HIDDEN, generator=torch.Generator().manual_seed(seed)).to(device)

    def next_inputs(self, step: int, n: int) -> Inputs:
        """Two hidden states and an empty adapter table."""
        generator = torch.Generator().manual_seed(step)
        hidden = [torch.randn(WIDEST, HIDDEN, generator=generator)[:n].to(self.device) for _ in range(2)]
        return Inputs(hidden, torch.zeros(n, 0, device=self.device))

    def forward(self, inputs: Inputs) -> Outputs:
        """All leaves have the rows in dimension 0."""
        first, second = inputs.hidden
        heads = Heads(first * self.scale, second + self.scale)
        return Outputs(heads, {"sums": [first + second], "none": []}, inputs.adapters * 2)

    def reset(self) -> None:
        """No state."""


def target(device: str, seed: int = 0) -> Nested:
    """The target."""
    return Nested(device, seed)
