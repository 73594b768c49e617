"""What was measured -> findings. Pure; what is wrong in a key comes as a finding of `diff`, told as the key's."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

from cudagraph_doctor.audit.keys import spans
from cudagraph_doctor.findings import Culprit, Finding, Proof, Severity
from cudagraph_doctor.measuring.model import Dependence, Measured, Measurement

WRONG, DEPENDENT, SLOWER = "CGD513", "CGD514", "CGD515"
RULES = (WRONG, DEPENDENT, SLOWER)
"""All codes that a measured audit can emit besides the static ones."""
_SLOWER = 1.5
"""Replay over eager, from which on it is spoken of: of steps that shared their GPU with 15 processes, sound ones were
seen at up to 1.4."""


def findings(measurement: Measurement, backend: str) -> list[Finding]:
    """What the numbers and the switching say."""
    return [*_dependent(measurement.switching.dependences, backend), *_slower(measurement.keys, backend)]


def wrong(told: Finding, key: int, rows: Iterable[int], spec: str) -> Finding:
    """A finding of `diff` about steps of one key, as one about the key."""
    batches = spans(rows)
    return dataclasses.replace(
        told,
        code=WRONG,
        message=f"The graph of key {key} is wrong for batches of {batches} ({told.code}). {told.message}",
        fix=f"{told.fix} `cudagraph-doctor diff {spec}` tells more.",
        key=str(key),
        evidence={**told.evidence, "rule": told.code, "batches": sorted(set(rows))},
    )


def _dependent(dependences: Sequence[Dependence], backend: str) -> Iterator[Finding]:
    """One finding for all keys: buffers and caches that keys share are one fault."""
    if not dependences:
        return
    one = dependences[0]
    others = sorted(other.key for other in dependences[1:])
    too = (
        f" So does key {others[0]}."
        if len(others) == 1
        else f" So do keys {', '.join(map(str, others))}."
        if others
        else ""
    )
    after = f"key {one.last_key} ({_rows(one.last_rows)})"
    yield Finding(
        DEPENDENT,
        f"The graph of key {one.key} gives another result for {_rows(one.rows)} once {after} ran before it "
        f"({one.times} of {one.times} times; equal while no other key had run): {one.differs}.{too}",
        Severity.ERROR,
        Proof.MEASURED,
        "Stage every input before each replay, whatever was staged last for this key, and let no graph read what "
        "another key's graph writes; or give each key buffers of its own.",
        Culprit("bucket", f"key {one.key}", f"after {after}"),
        key=str(one.key),
        backend=backend,
        evidence={"dependences": [dataclasses.asdict(other) for other in dependences]},
    )


def _slower(keys: Sequence[Measured], backend: str) -> Iterator[Finding]:
    for key in keys:
        replay, eager = key.replay, key.eager
        if replay is None or eager is None:
            continue
        if replay.median_ms < _SLOWER * eager.median_ms or replay.low_ms <= eager.high_ms:
            continue
        yield Finding(
            SLOWER,
            f"The graph of key {key.size} is slower than the same step run eagerly: {replay.median_ms:.4g} ms against "
            f"{eager.median_ms:.4g} ms (medians of {replay.runs} runs in turn, {_rows(key.rows)}).",
            Severity.WARNING,
            Proof.MEASURED,
            "Look for work that only the capture does (a warm-up loop, a branch on is_current_stream_capturing(), "
            "kernels for the longest length); else leave the key out.",
            Culprit("bucket", f"key {key.size}"),
            key=str(key.size),
            backend=backend,
            evidence={"replay": dataclasses.asdict(replay), "eager": dataclasses.asdict(eager), "nodes": key.nodes},
        )


def _rows(count: int) -> str:
    return f"{count} row" + ("s" if count != 1 else "")
