"""The planted faults: which rule each triggers, which culprit has to be named. A table, read without torch.

The code is in `faulty_staging.py`, `faulty_step.py` and `faulty_engine.py`: a few lines a fault, and beside it a clean
twin that does nearly the same thing, but right.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """One planted fault."""

    name: str
    """What `--fault` takes."""
    rule: str
    """The code that it triggers."""
    culprit: str
    """What the finding has to name: this is part of the culprit's name."""
    summary: str
    """What is done wrong."""
    twin: str
    """What the clean twin does instead."""
    forms: tuple[str, ...] = ("loop",)
    """Target forms in which it exists: "loop", "engine"."""
    emulated: bool = True
    """Whether the emulated backend can see it."""
    why_not_emulated: str = ""
    """Why not, if it cannot."""


_ALL = (
    Fault(
        "slot-mapping-not-copied", "CGD102", "slot_mapping",
        "Staging copies every input but slot_mapping: new keys and values are written nowhere.",
        "slot_mapping is written by torch.cat(out=...) instead of copy_.",
    ),
    Fault(
        "seq-lens-rebound", "CGD101", "seq_lens",
        "Staging assigns a fresh seq_lens tensor; the graph goes on reading the one it was captured with.",
        "The same tensor is assigned through [:], which copies.",
    ),
    Fault(
        "position-by-value", "CGD101", "rotary_embedding",
        "Positions advance by a Python int that is passed to the rotary kernel by value.",
        "The int is a device tensor, added to the positions inside the step.",
    ),
    Fault(
        "branch-on-length", "CGD101", "max_seq_len",
        "The step scales its logits if a Python int, the longest length, is above a threshold.",
        "Both ways are computed, and a comparison on the device chooses.",
    ),
    Fault(
        "padding-writes-slot-0", "CGD103", "slot_mapping",
        "The tail of slot_mapping is filled with 0, a slot that a live request owns.",
        "It is filled with slots of the block that no request is given, and the target says so.",
    ),
    Fault(
        "block-table-first-column", "CGD102", "block_table",
        "Staging copies the first column of block_table only: tokens behind the first block are read elsewhere.",
        "It copies as many columns as are in use, and leaves old blocks in the others, which nobody reads.",
    ),
    Fault(
        "stale-seq-lens-tail", "CGD103", "seq_lens",
        "The write slot is derived in the step from seq_lens and block_table, and a shrink leaves both tails stale: "
        "rows that are no longer there write to a block that a live row owns.",
        "The tail of seq_lens is zeroed; that of block_table stays stale, without effect.",
    ),
    Fault(
        "kept-output-overwritten", "CGD104", "logits",
        "The engine keeps a view of a step's logits for a penalty in the next step, whose replay overwrites it.",
        "It keeps a clone.",
        forms=("engine",),
    ),
    Fault(
        "weights-replaced", "CGD101", "lm_head.weight",
        "A weight update in step 3 installs another Parameter object.",
        "It copies into the Parameter that is there.",
    ),
    Fault(
        "metadata-recreated", "CGD101", "metadata.",
        "Staging makes a new metadata object each step, with new slot_mapping, block_table and seq_lens.",
        "It refreshes the tensors of the metadata object that was captured.",
    ),
    Fault(
        "host-random-draw", "CGD101", "mul",
        "The temperature's noise is drawn by Python inside the step: a number that the capture freezes.",
        "It is drawn on the device, by the default generator.",
    ),
    Fault(
        "missing-reverse-event", "CGD105", "static",
        "The copy stream fills a buffer without waiting for the replay, two steps ago, that reads it.",
        "It waits for everything on the compute stream instead of for the one event.",
        forms=("engine",),
        emulated=False,
        why_not_emulated="emulated streams run one after the other, so a missing wait changes nothing",
    ),
)

FAULTS: dict[str, Fault] = {fault.name: fault for fault in _ALL}
"""All faults by name, in order."""
