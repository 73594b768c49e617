"""The faults that `audit --target` finds: a key that is wrong, that depends on other keys, or that does not pay.

The code is in `faulty_keys.py`. A table, read without torch.
"""

from __future__ import annotations

from cudagraph_doctor.reference_models.faults import Fault

_ALL = (
    Fault(
        name="key-without-positions",
        rule="CGD513",
        culprit="positions",
        summary="Staging has a special case for the largest bucket, which leaves positions as they were.",
        twin="The special case stages positions once more.",
    ),
    Fault(
        name="grown-batch-staged-in-part",
        rule="CGD514",
        culprit="key",
        summary="Buckets share their buffers; when the batch grows, only new rows of the block table are staged.",
        twin="All rows are staged.",
    ),
    Fault(
        name="captured-many-times",
        rule="CGD515",
        culprit="key",
        summary="A warm-up loop around the step is captured along: each replay does the step 256 times.",
        twin="The loop goes round once.",
        emulated=False,
        why_not_emulated="emulated times mean nothing",
    ),
)

KEY_FAULTS: dict[str, Fault] = {fault.name: fault for fault in _ALL}
"""By name, in order."""
