"""Attention metadata is a long-lived object that the model holds and that is refreshed in place, scalars included.

It is not among the arguments of the step. A careless tool sees a step that ignores its inputs, or takes the object
for one that is re-created each step because its scalars change.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .paged import Batch, PagedLoop, padding


@dataclass
class Metadata:
    """What attention layers read; `rows` and `step_name` are for logs only."""

    batch: Batch
    rows: int = 0
    step_name: str = ""


class ContextLoop(PagedLoop):
    """Eager steps get metadata of their own; graphs have the static one."""

    def __init__(self, device: str, seed: int) -> None:
        super().__init__(device, seed)
        self.static = Metadata(padding(max(self.buckets), device))

    def next_inputs(self, step: int, n: int) -> Metadata:  # type: ignore[override]
        """A fresh object."""
        return Metadata(super().next_inputs(step, n), n, f"decode {step}")

    def static_inputs(self, bucket: int) -> Metadata:  # type: ignore[override]
        """Views of the one static object's tensors."""
        return Metadata(self.static.batch.rows(bucket))

    def update(self, static: Metadata, fresh: Metadata) -> None:  # type: ignore[override]
        """In place: tensors by copy, scalars by assignment."""
        static.batch.load(fresh.batch)
        static.rows, static.step_name = fresh.rows, fresh.step_name
        self.static.rows, self.static.step_name = fresh.rows, fresh.step_name

    def forward(self, inputs: Metadata) -> dict[str, torch.Tensor]:  # type: ignore[override]
        """Reads the tensors only."""
        return self.decoder(inputs.batch)


def target(device: str, seed: int = 0) -> ContextLoop:
    """The target."""
    return ContextLoop(device, seed)
