"""The faults of runners, which only a trace shows: results are right, and steps do not replay as they should. A table.

The code is in `faulty_runner.py`. `cudagraph-doctor record reference:engine --fault NAME --then-check` shows one.
"""

from __future__ import annotations

from cudagraph_doctor.reference_models.capture_faults import CAPTURE_FAULTS
from cudagraph_doctor.reference_models.faults import FAULTS, Fault
from cudagraph_doctor.reference_models.input_faults import INPUT_FAULTS
from cudagraph_doctor.reference_models.key_faults import KEY_FAULTS


def _fault(name: str, rule: str, summary: str, twin: str, culprit: str = "bucket") -> Fault:
    return Fault(
        name=name,
        rule=rule,
        culprit=culprit,
        summary=summary,
        twin=twin,
        forms=("engine",),
        emulated=False,
        why_not_emulated="it shows in a trace of a GPU only",
    )


_ALL = (
    _fault(
        "batch-above-largest",
        "CGD401",
        "The largest bucket is 8, and up to 16 requests are admitted.",
        "Buckets reach up to 16.",
    ),
    _fault(
        "bucket-missing",
        "CGD402",
        "Bucket 8 is not captured, and the runner looks batches of 5 to 8 up under it.",
        "They are padded to 16.",
    ),
    _fault("exact-sizes-only", "CGD403", "Only batches that are a bucket are replayed.", "Batches are padded."),
    _fault(
        "dummy-request-fails",
        "CGD408",
        "The dummy request for padding cannot be allocated once, and graphs are off from then on.",
        "It is allocated at start-up.",
        culprit="",
    ),
    _fault(
        "prefill-mixed-in",
        "CGD404",
        "Every third step carries prefill tokens, and runs eager for it.",
        "The prefill is a step of its own.",
        culprit="",
    ),
    _fault(
        "drafts-not-uniform",
        "CGD405",
        "Two tokens a request; steps in which a request has no draft run eager.",
        "The missing draft is padded.",
    ),
    _fault(
        "graphs-silently-off",
        "CGD406",
        "A condition that is never true guards the replay; captures are made all the same.",
        "It is true.",
        culprit="",
    ),
    _fault(
        "captured-in-step",
        "CGD409",
        "Buckets above 4 are captured when a step needs them first.",
        "They are captured between steps.",
    ),
    _fault(
        "updated-each-step",
        "CGD410",
        "The executable graph is updated before every launch.",
        "It is updated once, after its capture.",
    ),
    _fault(
        "key-without-mode",
        "CGD411",
        "Steps with and without a penalty share a key: the graph is captured anew when the mode changes.",
        "The mode is part of the key.",
    ),
    _fault(
        "attention-outside",
        "CGD412",
        "Attention runs eagerly between pieces of a graph.",
        "Attention is captured.",
    ),
    _fault(
        "replayed-twice",
        "CGD413",
        "Every seventh step replays its graph a second time.",
        "Every step replays twice: usual for this engine.",
    ),
    _fault(
        "range-on-other-thread",
        "CGD414",
        "A worker thread launches, while the step's range is open on the main thread.",
        "The range is opened by the worker.",
        culprit="another",
    ),
)

RUNNER_FAULTS: dict[str, Fault] = {fault.name: fault for fault in _ALL}
"""By name, in order."""
ALL_FAULTS: dict[str, Fault] = FAULTS | CAPTURE_FAULTS | INPUT_FAULTS | RUNNER_FAULTS | KEY_FAULTS
"""What `--fault` takes."""
