"""The reference model as a LoopTarget: a decode step that can be called with any values.

This is what a target looks like. Next on the path: `engine.py` (the same model with a runner of its own), `faults.py`.
"""

from __future__ import annotations

import torch

from cudagraph_doctor.reference_models.decode import Decoder, DecoderConfig
from cudagraph_doctor.reference_models.inputs import DecodeInputs, padding, stage, true_inputs

BUCKETS = [1, 2, 4, 8, 16]
"""Batch sizes that are captured."""


class ReferenceLoop:
    """One decode step of the reference model, played from requests that join and leave."""

    buckets = BUCKETS

    def __init__(self, config: DecoderConfig, device: str, dtype: torch.dtype, seed: int) -> None:
        self.config = config
        self.device = device
        self.seed = seed
        self.model = Decoder(config, device, dtype, seed)

    def next_inputs(self, step: int, n: int) -> DecodeInputs:
        """The truth of step `step` for `n` rows."""
        return true_inputs(step, n, self.config.vocab_size, self.config.num_blocks, self.seed, self.device)

    def static_inputs(self, bucket: int) -> DecodeInputs:
        """Buffers of `bucket` rows, all padding."""
        return padding(bucket, self.device)

    def update(self, static: DecodeInputs, fresh: DecodeInputs) -> None:
        """Stage a step."""
        stage(static, fresh)

    def forward(self, inputs: DecodeInputs) -> dict[str, torch.Tensor]:
        """The decode step: {"logits": (n, vocab), "tokens": (n,)}."""
        outputs: dict[str, torch.Tensor] = self.model(inputs)
        return outputs

    def state(self) -> dict[str, torch.Tensor]:
        """The caches of all layers."""
        return self.model.caches()

    def reset(self) -> None:
        """The caches as before step 0, in place."""
        self.model.reset_caches(self.seed)
