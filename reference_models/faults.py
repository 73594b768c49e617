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
    """What the finding has to name: this is part of the culprit's name. "" where nothing with a name is to blame."""
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
        name="slot-mapping-not-copied",
        rule="CGD102",
        culprit="slot_mapping",
        summary="Staging copies every input but slot_mapping: new keys and values are written nowhere.",
        twin="slot_mapping is written by torch.cat(out=...) instead of copy_.",
    ),
    Fault(
        name="seq-lens-rebound",
        rule="CGD101",
        culprit="seq_lens",
        summary="Staging assigns a fresh seq_lens tensor; the graph goes on reading the one it was captured with.",
        twin="The same tensor is assigned through [:], which copies.",
    ),
    Fault(
        name="position-by-value",
        rule="CGD101",
        culprit="rotary_embedding",
        summary="Positions advance by a Python int that is passed to the rotary kernel by value.",
        twin="The int is a device tensor, added to the positions inside the step.",
    ),
    Fault(
        name="branch-on-length",
        rule="CGD101",
        culprit="node",
        summary="The step scales its logits if a Python int, the longest length, is above a threshold.",
        twin="Both ways are computed, and a comparison on the device chooses.",
    ),
    Fault(
        name="padding-writes-slot-0",
        rule="CGD103",
        culprit="slot_mapping",
        summary="The tail of slot_mapping is filled with 0, a slot that a live request owns.",
        twin="It is filled with slots of the block that no request is given, and the target says so.",
    ),
    Fault(
        name="block-table-first-column",
        rule="CGD102",
        culprit="block_table",
        summary="Staging copies only the first column of block_table: behind the first block, other blocks are read.",
        twin="It copies as many columns as are in use, and leaves old blocks in the others, which nobody reads.",
    ),
    Fault(
        name="stale-seq-lens-tail",
        rule="CGD103",
        culprit="seq_lens",
        summary="The step derives the write slot from seq_lens and block_table, and a shrink leaves both tails stale: "
        "rows that are no longer there write to a block that a live row owns.",
        twin="The tail of seq_lens is zeroed; that of block_table stays stale, without effect.",
    ),
    Fault(
        name="kept-output-overwritten",
        rule="CGD104",
        culprit="kept",
        summary="The engine keeps a view of a step's logits for a penalty in the next step, which overwrites them.",
        twin="It keeps a clone.",
        forms=("engine",),
    ),
    Fault(
        name="weights-replaced",
        rule="CGD101",
        culprit="lm_head.weight",
        summary="A weight update in step 3 installs another Parameter object.",
        twin="It copies into the Parameter that is there.",
    ),
    Fault(
        name="metadata-recreated",
        rule="CGD101",
        culprit="metadata",
        summary="Staging makes a new metadata object each step, with new slot_mapping, block_table and seq_lens.",
        twin="It refreshes the tensors of the metadata object that was captured.",
    ),
    Fault(
        name="host-random-draw",
        rule="CGD101",
        culprit="mul",
        summary="The temperature's noise is drawn by Python inside the step: a number that the capture freezes.",
        twin="It is drawn on the device, by the default generator.",
    ),
    Fault(
        name="missing-reverse-event",
        rule="CGD105",
        culprit="static",
        summary="The copy stream fills a buffer without waiting for the replay, two steps ago, that reads it.",
        twin="It waits for everything on the compute stream instead of for the one event.",
        forms=("engine",),
        emulated=False,
        why_not_emulated="emulated streams run one after the other, so a missing wait changes nothing",
    ),
)

FAULTS: dict[str, Fault] = {fault.name: fault for fault in _ALL}
"""All faults by name, in order."""
