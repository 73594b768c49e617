"""What changes from step to step, as tensors: the true values of a step, safe padding, and how a step is staged."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from cudagraph_doctor.reference_models.requests import BLOCK_SIZE, LONGEST_REQUEST, running

TABLE_WIDTH = LONGEST_REQUEST // BLOCK_SIZE
"""Columns of a block table that fits every request."""


PADDING = {"input_ids": 0, "positions": 0, "slot_mapping": -1, "block_table": 0, "seq_lens": 0}
"""What stands where there is no request: nothing is read, nothing is written."""


@dataclass(slots=True)
class DecodeInputs:
    """Inputs of one decode step: one row a request."""

    input_ids: torch.Tensor
    """(n,) int64."""
    positions: torch.Tensor
    """(n,) int64: of the tokens in `input_ids`."""
    slot_mapping: torch.Tensor
    """(n,) int32: where their keys and values go in the cache; -1 writes nothing."""
    block_table: torch.Tensor
    """(n, width) int32: the cache blocks of each request, in order; 0 beyond what it owns."""
    seq_lens: torch.Tensor
    """(n,) int32: how many tokens of these blocks are read, the new one included; 0 reads nothing."""

    def rows(self, n: int) -> DecodeInputs:
        """Views of the first `n` rows."""
        return DecodeInputs(*(getattr(self, name)[:n] for name in PADDING))

    def pinned(self) -> DecodeInputs:
        """Copies in pinned memory, from where the device copies without holding up the host."""
        return DecodeInputs(*(getattr(self, name).pin_memory() for name in PADDING))


def true_inputs(step: int, rows: int, vocab_size: int, num_blocks: int, seed: int, device: str) -> DecodeInputs:
    """The truth of step `step` for `rows` rows, unpadded; the table is as wide as the longest request needs.

    The last of the `num_blocks` blocks is given to nobody. Which token a request has at a position is scripted, so a
    step's inputs do not depend on what earlier steps put out.
    """
    requests = running(step, rows, seed, num_blocks - 1)
    width = max(len(request.blocks) for request in requests)

    def tensor(values: list[int] | list[list[int]], dtype: torch.dtype) -> torch.Tensor:
        return torch.tensor(values, dtype=dtype, device=device)

    return DecodeInputs(
        input_ids=tensor([(r.number * 7919 + r.position * 31 + seed) % vocab_size for r in requests], torch.int64),
        positions=tensor([r.position for r in requests], torch.int64),
        slot_mapping=tensor([r.slot for r in requests], torch.int32),
        block_table=tensor([[*r.blocks, *[0] * (width - len(r.blocks))] for r in requests], torch.int32),
        seq_lens=tensor([r.length for r in requests], torch.int32),
    )


def padding(rows: int, device: str) -> DecodeInputs:
    """`rows` rows that write nothing and read nothing: the static inputs before anything is staged."""
    return DecodeInputs(
        input_ids=torch.zeros(rows, dtype=torch.int64, device=device),
        positions=torch.zeros(rows, dtype=torch.int64, device=device),
        slot_mapping=torch.full((rows,), -1, dtype=torch.int32, device=device),
        block_table=torch.zeros(rows, TABLE_WIDTH, dtype=torch.int32, device=device),
        seq_lens=torch.zeros(rows, dtype=torch.int32, device=device),
    )


def stage(static: DecodeInputs, fresh: DecodeInputs) -> None:
    """Copy a step into the leading rows of the static inputs, and make padding of all that is behind it."""
    for name in PADDING:
        copy_input(name, static, fresh)


def copy_input(name: str, static: DecodeInputs, fresh: DecodeInputs) -> None:
    """`stage` for one input: in place, so that the captured address stays the one that is read."""
    buffer: torch.Tensor = getattr(static, name)
    values: torch.Tensor = getattr(fresh, name)
    buffer.fill_(PADDING[name])
    # From pinned memory this returns at once; the order on the stream is what counts.
    buffer[tuple(slice(size) for size in values.shape)].copy_(values, non_blocking=True)
