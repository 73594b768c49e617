"""The faults of what replays read: those planted for `inputs`, and what it has to say of those planted for `diff`.

A table, read without torch. The code is in `faulty_buffers.py` and `faulty_values.py` (loops), `faulty_memory.py` and
`faulty_handover.py` (engines). Lines that have to be named carry the comment `# planted: NAME CODE`; where a line is
missing, what happened, or what was forgotten, has no line of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from cudagraph_doctor.reference_models.faults import Fault

SOURCES = tuple(
    f"faulty_{part}.py" for part in ("buffers", "values", "memory", "handover", "staging", "step", "engine")
)
"""Files with marked lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFault(Fault):
    """A fault planted for `inputs`."""

    emulated_rule: str = ""
    """The code that it triggers emulated, where that is another one."""
    twin_note: str = ""
    """The code of the note that the twin gets on a GPU: it differs too, and does no harm."""


_ALL = (
    InputFault(
        name="index-read-from-tail",
        rule="CGD304",
        culprit="out_rows",
        summary="An index buffer as long as the largest batch is filled at its front; the step reads its end.",
        twin="The step reads its front; the end is stale, which nobody sees.",
    ),
    InputFault(
        name="two-staging-paths",
        rule="CGD305",
        culprit="slot_mapping",
        summary="A full batch is staged on a fast path, which hands out the runner's own slot_mapping; graphs were "
        "captured on the other path.",
        twin="The fast path copies into the captured buffer.",
    ),
    InputFault(
        name="captured-buffer-reused",
        rule="CGD306",
        culprit="history",
        summary="A table that graphs read is freed after the captures, and the history is given its address.",
        twin="The engine keeps the table.",
        forms=("engine",),
        emulated=False,
        why_not_emulated="emulated memory is never handed out again",
    ),
    InputFault(
        name="captured-buffer-freed",
        rule="CGD307",
        culprit="",
        summary="A table that graphs read is kept by a weak reference only, and gone after the captures.",
        twin="The engine keeps the table.",
        forms=("engine",),
        emulated=False,
        why_not_emulated="emulated graphs keep what they read alive",
    ),
    InputFault(
        name="derived-weights-replaced",
        rule="CGD308",
        culprit="transposed",
        summary="After a weight update the transposed copy of the weight, which graphs read, is a new tensor.",
        twin="The copy is refreshed in place.",
    ),
    InputFault(
        name="padding-temperature-zero",
        rule="CGD310",
        culprit="temperature",
        summary="Padding rows have temperature 0: their NaN reaches all rows through a mean that counts them 0 times.",
        twin="Padding rows have temperature 1.",
    ),
    InputFault(
        name="pinned-buffer-rewritten",
        rule="CGD311",
        culprit="host",
        summary="The host writes each step into one pinned buffer, without waiting for the copies of the step before.",
        twin="It waits for the event behind those copies.",
        forms=("engine",),
        emulated=False,
        why_not_emulated="emulated copies are done when they are issued",
    ),
    InputFault(
        name="host-read-too-early",
        rule="CGD312",
        culprit="tokens_on_host",
        summary="Tokens are copied to the host behind the replay, and looked at before they have come.",
        twin="The host waits for an event behind the copy.",
        forms=("engine",),
        emulated=False,
        why_not_emulated="emulated copies are done when they are issued",
    ),
    InputFault(
        name="output-in-shared-pool",
        rule="CGD314",
        culprit="logits",
        summary="A draft graph, captured first in the same pool, overwrites the logits before they are read.",
        twin="The draft graph has a pool of its own.",
        forms=("engine",),
        emulated=False,
        why_not_emulated="emulated pools never hand out the same memory twice",
    ),
    InputFault(
        name="noise-reseeded",
        rule="CGD315",
        culprit="generator",
        summary="Staging seeds the device's generator: every replay draws the same numbers.",
        twin="Only reset() seeds it.",
    ),
    InputFault(
        name="optional-input-skipped",
        rule="CGD316",
        culprit="shift",
        summary="An optional input is staged only if it is there: a step without it reads that of the step before.",
        twin="It is zeroed where it is absent.",
    ),
    InputFault(
        name="attribute-read-outside",
        rule="CGD317",
        culprit="longest",
        summary="The model notes a tensor in an attribute, which the engine reads behind the replay.",
        twin="The tensor is an output of the graph.",
        forms=("engine",),
    ),
    InputFault(
        name="scale-and-shift-swapped",
        rule="CGD318",
        culprit="scale",
        summary="What logits are scaled and shifted by is staged, each into the other's buffer.",
        twin="Each is staged into its own.",
    ),
    InputFault(
        name="temperature-by-value",
        rule="CGD320",
        culprit="mul",
        summary="Logits are multiplied by a Python float, the inverse temperature of the step.",
        twin="The temperature is a device tensor.",
    ),
    InputFault(
        name="triton-scale-by-value",
        rule="CGD320",
        culprit="scale_rows",
        summary="A Triton kernel is given the step's scale as a Python float.",
        twin="The kernel's own scale is 1; the step's is applied from a device tensor.",
    ),
    InputFault(
        name="max-seqlen-by-value",
        rule="CGD320",
        culprit="paged_attention_decode",
        summary="Attention is given the longest sequence of the step by value, and looks no further.",
        twin="It is given the longest that there can be.",
    ),
    InputFault(
        name="quantisation-scale-by-value",
        rule="CGD320",
        culprit="fake_quantize",
        summary="Logits are quantised by a Python float that calibration moves.",
        twin="The scale is a device tensor.",
    ),
    InputFault(
        name="descriptor-by-value",
        rule="CGD321",
        culprit="load_rows",
        summary="A descriptor of 128 bytes, made on the host for the live rows, is passed to a kernel by value.",
        twin="It is made for all rows that there can be.",
        emulated_rule="CGD320",
    ),
    InputFault(
        name="too-few-splits",
        rule="CGD322",
        culprit="key_amax",
        summary="The grid has as many splits as the longest context of the capture: longer ones are cut off.",
        twin="Blocks go on where others have left off: any number of splits gives the same.",
        emulated_rule="CGD320",
        twin_note="CGD322",
    ),
    InputFault(
        name="round-counter",
        rule="CGD324",
        culprit="lt",
        summary="Python counts the rounds of a hand-over and passes the count by value; replays repeat the capture's.",
        twin="The device counts.",
    ),
    InputFault(
        name="key-without-length",
        rule="CGD325",
        culprit="paged_attention_decode",
        summary="Graphs are captured on first use and looked up by batch size; the longest length is baked into them.",
        twin="The length is part of the key.",
        forms=("engine",),
    ),
    InputFault(
        name="workspace-uninitialised",
        rule="CGD326",
        culprit="",
        summary="A workspace is written for live rows only, and all of it is read: padding rows bring what was there.",
        twin="It is zeroed first.",
    ),
)

INPUT_FAULTS: dict[str, InputFault] = {fault.name: fault for fault in _ALL}
"""By name, in order of the rules."""

SEEN_BY_INPUTS: dict[str, tuple[str, str]] = {
    "slot-mapping-not-copied": ("CGD301", "slot_mapping"),
    "block-table-first-column": ("CGD302", "block_table"),
    "stale-seq-lens-tail": ("CGD303", "seq_lens"),
    "seq-lens-rebound": ("CGD305", "seq_lens"),
    "metadata-recreated": ("CGD305", "metadata"),
    "weights-replaced": ("CGD308", "lm_head.weight"),
    "padding-writes-slot-0": ("CGD309", "slot_mapping"),
    "kept-output-overwritten": ("CGD313", "kept"),
    "position-by-value": ("CGD320", "rotary_embedding"),
    "branch-on-length": ("CGD323", "mul"),
    "host-random-draw": ("CGD324", "mul"),
} | {fault.name: (fault.rule, fault.culprit) for fault in _ALL}
"""Fault -> the code that `inputs` gives it, and a part of the culprit's name: of its own faults and of `diff`'s.

`missing-reverse-event` is missing: which bytes are read when depends on the clock alone, and `diff` forces it.
"""
