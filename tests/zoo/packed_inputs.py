"""All integer inputs of a step are staged in one packed buffer, and the names of fresh and static inputs differ.

One copy to the device instead of five. A careless tool pairs fresh and static tensors by name, finds five inputs
"missing" from the graph, and takes the packed buffer for one that no fresh value goes to.
"""

from __future__ import annotations

import torch

from .paged import BLOCKS, Batch, PagedDecoder, padding, schedule


class Packed:
    """Columns of `staging`: token, position, slot, length, block table."""

    def __init__(self, device: str, seed: int) -> None:
        self.buckets = [1, 2, 4]
        self.device = device
        self.decoder = PagedDecoder(device, seed)

    def next_inputs(self, step: int, n: int) -> Batch:
        """Five tensors."""
        return schedule(step, n, self.device)

    def pack(self, batch: Batch) -> torch.Tensor:
        """One tensor, (n, 4 + BLOCKS)."""
        columns = [batch.tokens, batch.positions, batch.slot_mapping, batch.seq_lens]
        return torch.cat([torch.stack(columns, dim=1), batch.block_table], dim=1)

    def static_inputs(self, bucket: int) -> dict[str, torch.Tensor]:
        """One int buffer of padding."""
        return {"staging": self.pack(padding(bucket, self.device))}

    def update(self, static: dict[str, torch.Tensor], fresh: Batch) -> None:
        """Pack and copy; rows behind the batch become padding again."""
        staging = static["staging"]
        staging[: len(fresh.tokens)].copy_(self.pack(fresh))
        staging[len(fresh.tokens) :].copy_(self.pack(padding(len(staging) - len(fresh.tokens), self.device)))

    def forward(self, inputs: Batch | dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Takes either form."""
        if isinstance(inputs, dict):
            token, position, slot, length = inputs["staging"][:, :4].unbind(1)
            inputs = Batch(token, position, slot, inputs["staging"][:, 4 : 4 + BLOCKS], length)
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


def target(device: str, seed: int = 0) -> Packed:
    """The target."""
    return Packed(device, seed)
