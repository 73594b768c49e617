"""Memory that an engine's graphs outlive or share, planted into `ReferenceEngine` (see `input_faults.py`)."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

from cudagraph_doctor.reference_models.engine import ReferenceEngine
from cudagraph_doctor.reference_models.inputs import DecodeInputs
from cudagraph_doctor.reference_models.requests import MAX_ROWS

Outputs = dict[str, torch.Tensor]

TABLE = 1 << 20
"""Numbers in a table: 4 MiB, which come out of a segment that several of them share. So the memory of one that is freed
stays mapped, and the next as large one is given its address."""
TRIES = 64
"""Tables that are asked for, at most, until one has the address of a freed one."""


def placed_at(address: int, make: Callable[[], torch.Tensor]) -> torch.Tensor:
    """The first of the tensors that `make` gives whose memory begins at `address`. Those in between are freed.

    Raises RuntimeError if none of the first `TRIES` does.
    """
    missed: list[torch.Tensor] = []
    while len(missed) < TRIES:
        made = make()
        if made.data_ptr() == address:
            return made
        missed.append(made)  # kept until one fits: what is freed at once is given out again
    raise RuntimeError(
        f"The allocator does not give the memory at {address:#x} to any of {TRIES} tensors that ask for it: it is not "
        "free, or of another size. This fault needs torch's own caching allocator, without expandable segments."
    )


# captured-buffer-freed, captured-buffer-reused


class CapturedBufferFreed(ReferenceEngine):
    """A table of biases is kept by a weak reference; when all is captured, nobody else has it any more."""

    history: torch.Tensor | None = None
    """(TABLE,) float32: how often each token was put out."""

    def recapture(self) -> None:
        """Capture all graphs anew, with one table for all of them."""
        self.counts()
        table = self.make_table()
        self.table = weakref.ref(table)
        super().recapture()

    def make_table(self) -> torch.Tensor:
        """(TABLE,) float32: the logits' biases, at the front."""
        return torch.arange(TABLE, dtype=torch.float32, device=self.device).sin_()  # nothing as large is freed with it

    def counts(self) -> torch.Tensor:
        """The history, made when it is first asked for."""
        if self.history is None:
            self.history = self.make_history()
        return self.history

    def make_history(self) -> torch.Tensor:
        """(TABLE,) float32: nothing counted."""
        return torch.zeros(TABLE, device=self.device)

    def biased(self, outputs: Outputs) -> Outputs:
        """A step's outputs, biased."""
        table = self.table()
        if table is None:
            table = self.make_table()
        logits = outputs["logits"] + table[: self.config.vocab_size].to(outputs["logits"].dtype)
        return {"logits": logits, "tokens": logits.argmax(dim=-1)}

    def step(self, i: int, n: int) -> Outputs:
        """Decode step `i` on `n` rows."""
        if self.use_graphs:
            return super().step(i, n)
        return self.finish(i, self.biased(self.model(self.prepare(i, n, self.device))))

    def run(self, bucket: int, static: DecodeInputs) -> None:
        """The captured work."""
        for name, output in self.biased(self.model(static.rows(bucket))).items():
            self.outputs[name][:bucket].copy_(output)

    def finish(self, i: int, outputs: Outputs) -> Outputs:
        """Count what was put out."""
        tokens = outputs["tokens"]
        self.counts().index_add_(0, tokens, torch.ones(len(tokens), device=self.device))
        return super().finish(i, outputs)

    def reset(self) -> None:
        """As before step 0."""
        super().reset()
        if self.history is not None:
            self.history.zero_()


class CapturedBufferReused(CapturedBufferFreed):
    """The history is made when all is captured, and is given the address of the table, which is just freed."""

    penalties: torch.Tensor | None = None
    """(TABLE,) float32: another table, in the segment."""

    def recapture(self) -> None:
        """Capture all graphs anew."""
        if self.penalties is None:
            self.penalties = torch.zeros(TABLE, device=self.device)
        table = self.make_table()
        self.table = weakref.ref(table)
        ReferenceEngine.recapture(self)
        address = table.data_ptr()
        del table
        if self.history is None:
            self.history = self.make_history_at(address)

    def make_history_at(self, address: int) -> torch.Tensor:
        """The history, where the table was; emulated memory is never given out again."""
        if torch.device(self.device).type != "cuda":
            return self.make_history()
        return placed_at(address, self.make_history)


class CapturedBufferKept(CapturedBufferFreed):
    """The engine has the table."""

    def make_table(self) -> torch.Tensor:
        """The one table."""
        if not hasattr(self, "kept"):
            self.kept = super().make_table()
        return self.kept


class CapturedBufferKeptBeside(CapturedBufferReused):
    """The engine has the table, and the history gets memory of its own."""

    def make_table(self) -> torch.Tensor:
        """The one table."""
        if not hasattr(self, "kept"):
            self.kept = super().make_table()
        return self.kept

    def make_history_at(self, address: int) -> torch.Tensor:
        """The history, elsewhere: the table is still there."""
        return self.make_history()


# output-in-shared-pool

CANDIDATES = 1 << 14
"""Tokens that a draft chooses from: with 16 rows its scratch memory is as large as small blocks of a pool come."""


class Drafting:
    """The graphs of a step: the model's, and behind it one that drafts the next token; then the logits are read."""

    def __init__(self, engine: OutputInSharedPool, bucket: int, static: DecodeInputs) -> None:
        pool = torch.cuda.graph_pool_handle()
        self.draft, self.model = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.draft, pool=engine.pool_of_draft(pool)):
            engine.outputs["drafts"][:bucket].copy_(engine.drafted(static.input_ids[:bucket]))
        with torch.cuda.graph(self.model, pool=pool):
            self.logits = engine.model(static.rows(bucket))["logits"]
        self.outputs = {name: output[:bucket] for name, output in engine.outputs.items()}

    def replay(self) -> None:
        """Both, and what becomes of the logits."""
        self.model.replay()
        self.draft.replay()
        self.outputs["logits"].copy_(self.logits)
        self.outputs["tokens"].copy_(self.logits.argmax(dim=-1))


class OutputInSharedPool(ReferenceEngine):
    """The draft is captured first, and its scratch memory is free when the model's outputs look for a place."""

    def recapture(self) -> None:
        """Capture all graphs anew."""
        self.outputs["drafts"] = torch.zeros(MAX_ROWS, device=self.device, dtype=torch.int64)
        super().recapture()

    def capture(self, bucket: int, static: DecodeInputs, pool: Any) -> Any:
        """Two graphs, in one pool of their own."""
        self.run(bucket, static)
        return Drafting(self, bucket, static)

    def run(self, bucket: int, static: DecodeInputs) -> None:
        """What is warmed up."""
        super().run(bucket, static)
        self.drafted(static.input_ids[:bucket])

    def pool_of_draft(self, pool: Any) -> Any:
        """Where the draft's memory comes from, if the model's is from `pool`."""
        return pool

    def drafted(self, input_ids: torch.Tensor) -> torch.Tensor:
        """(n,) int64 -> (n,) int64: the candidate with the highest score."""
        scores = torch.zeros(MAX_ROWS, CANDIDATES, device=self.device)
        scores[: len(input_ids)].scatter_(1, input_ids.unsqueeze(1) * 7 % CANDIDATES, 1.0)
        return scores[: len(input_ids)].argmax(dim=-1)

    def step(self, i: int, n: int) -> Outputs:
        """Decode step `i` on `n` rows."""
        if self.use_graphs:
            return super().step(i, n)
        inputs = self.prepare(i, n, self.device)
        return self.finish(i, {**self.model(inputs), "drafts": self.drafted(inputs.input_ids)})


class OutputInPoolOfItsOwn(OutputInSharedPool):
    """The draft has another pool."""

    def pool_of_draft(self, pool: Any) -> Any:
        """Where the draft's memory comes from."""
        return torch.cuda.graph_pool_handle()


PLANTED: dict[str, tuple[type[ReferenceEngine], type[ReferenceEngine]]] = {
    "captured-buffer-freed": (CapturedBufferFreed, CapturedBufferKept),
    "captured-buffer-reused": (CapturedBufferReused, CapturedBufferKeptBeside),
    "output-in-shared-pool": (OutputInSharedPool, OutputInPoolOfItsOwn),
}
"""Fault and clean twin by the fault's name."""
