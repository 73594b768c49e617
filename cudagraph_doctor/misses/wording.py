"""Judged steps -> findings and the step table: one warning for each reason and bucket, one error for each gate."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from cudagraph_doctor.findings import Culprit, Finding, Proof, Severity, Step
from cudagraph_doctor.misses.gates import Gate
from cudagraph_doctor.misses.judged import Judged, Run
from cudagraph_doctor.misses.reasons import Reason
from cudagraph_doctor.misses.summary import ms, share, span, typical_ms
from cudagraph_doctor.misses.verdict import FEW

GATE, SIDE_THREAD, FAILED, WITHOUT_LABELS = "CGD400", "CGD414", "CGD415", "CGD416"
CODES = {
    Reason.ABOVE_LARGEST: "CGD401",
    Reason.HOLE: "CGD402",
    Reason.PADDING_OFF: "CGD403",
    Reason.PREFILL: "CGD404",
    Reason.SPECULATION: "CGD405",
    Reason.NEVER_LAUNCHED: "CGD406",
    Reason.NO_GRAPHS: "CGD406",
    Reason.BYPASSED: "CGD407",
    Reason.LOST: "CGD408",
    Reason.CAPTURE: "CGD409",
    Reason.EXEC_UPDATE: "CGD410",
    Reason.KEY_TOO_WEAK: "CGD411",
    Reason.OUTSIDE_GRAPH: "CGD412",
    Reason.UNUSUAL: "CGD413",
    Reason.FAILED: FAILED,
}
RULES = tuple(sorted({GATE, SIDE_THREAD, WITHOUT_LABELS, *CODES.values()}))
"""All codes that `buckets` can emit."""
_FIX = {
    Reason.ABOVE_LARGEST: "Capture a bucket for the largest batch that is admitted, or admit no more than is captured.",
    Reason.HOLE: "Capture the missing bucket (its capture may have been skipped or have failed), or pad to "
    "the next one.",
    Reason.PADDING_OFF: "Let the runner pad to the next bucket; if it needs a dummy request, reserve its cache at "
    "start-up.",
    Reason.PREFILL: "Schedule prefill apart from decode, or use a mode with piecewise graphs for mixed steps.",
    Reason.SPECULATION: "Capture token counts that are multiples of 1 + draft tokens, up to the most requests.",
    Reason.NEVER_LAUNCHED: "Look for the condition that sends every step past the runner, and let it log why.",
    Reason.NO_GRAPHS: "If graphs are meant to be on: look at enforce-eager switches, and record a trace that has "
    "replays.",
    Reason.BYPASSED: "Log why the runner refused these steps; the same batch has a graph.",
    Reason.LOST: "Look at what failed in the step before; a condition that turns graphs off must be tried again.",
    Reason.CAPTURE: "Capture all keys before serving (warm-up), and let a missing key run eager.",
    Reason.EXEC_UPDATE: "Keep what changes in device tensors at fixed addresses, so that the graph need not be "
    "updated.",
    Reason.KEY_TOO_WEAK: "Put what differs (mode, draft or verify, adapters) into the key, and keep a graph for each.",
    Reason.OUTSIDE_GRAPH: "Capture the kernels that run outside; if piecewise graphs are meant, say --expect "
    "piecewise.",
    Reason.UNUSUAL: "See what these steps launch besides; if it is meant, say --expect-launches.",
    Reason.FAILED: "`cudagraph-doctor explain CGD415` says what the error codes mean.",
}
_LISTED_STEPS = 20


def findings(run: Run, gates: Sequence[Gate]) -> list[Finding]:
    """All findings of a run: gates first."""
    found = [_gate(gate) for gate in gates if gate.met is False]
    groups: dict[tuple[Reason, str], list[Judged]] = defaultdict(list)
    for step in run.decode:
        if step.miss:
            groups[step.miss.reason, step.miss.key].append(step)
    found += [_miss(reason, key, steps, run) for (reason, key), steps in groups.items()]
    found += _failed_captures(run)
    found += _side_thread(run)
    found += _without_labels(run)
    return found


def steps(run: Run) -> tuple[Step, ...]:
    """The step table."""
    several = len(run.lanes) > 1
    return tuple(
        Step(
            index=step.record.index,
            rows=step.record.label.batch or 0,
            key="" if step.bucket is None else str(step.bucket),
            verdict=step.verdict.value,
            detail=({"lane": run.lanes[step.record.lane].name} if several else {}) | _detail(step),
        )
        for step in run.steps
    )


def _detail(step: Judged) -> dict[str, Any]:
    record = step.record
    label = record.label
    kernels = {"graph_kernels": record.graph_kernels, "graph_kernels_from": record.graph_kernels_from}
    told: dict[str, Any] = {
        "label": label.text,
        "stage": label.stage.value,
        "hit": step.hit,
        "reason": step.miss.reason.value if step.miss else "",
        "why": (step.miss.detail if step.miss else "") or step.ruling.why,
        "batch": label.batch,
        "tokens": label.tokens,
        "bucket": step.bucket,
        "padding_rows": step.padding,
        "padding_share": None if step.padding is None or not step.bucket else share(step.padding, step.bucket),
        "graph_launches": record.graph_launches,
        "loose_launches": record.loose_launches,
        **(kernels if record.graph_launches else {}),
        "captures": record.captures,
        "exec_updates": record.updates,
        "side_thread_launches": record.side_graph_launches + record.side_loose_launches,
        "start_ms": ms(record.start_ns),
        "time_ms": ms(step.time_ns),
        "submit_ms": ms(record.submit_ns),
        "in_calls_ms": ms(record.call_ns),
        "gpu_ms": ms(record.gpu_busy_ns),
        "gpu_idle_ms": ms(record.gpu_idle_ns),
        "gpu_exact": record.busy_exact if record.gpu_busy_ns is not None else None,
        "overlap": record.overlap,
        "graphs": [graph for graph in record.graphs if graph],
    }
    return {name: value for name, value in told.items() if value not in (None, "", [])}


def _miss(reason: Reason, key: str, group: list[Judged], run: Run) -> Finding:
    first = group[0]
    sizes = span(step.record.label.size for step in group)
    count = f"{len(group)} of {len(run.decode)} decode steps"
    replayed = [step for step in run.decode if step.hit and step not in group]
    slow, fast = typical_ms(group), typical_ms(replayed)
    compared = f" They take {slow:g} ms, replays {fast:g} ms (medians)." if slow and fast else ""
    detail = f": {first.miss.detail}" if first.miss and first.miss.detail else ""
    sure = all(step.miss.sure for step in group if step.miss)
    if not sure and not run.buckets.exact:
        detail += " (buckets are read off the steps; give --buckets to be sure)"
    return Finding(
        code=CODES[reason],
        message=f"{count}: {reason.value}"
        + (f" ({'tokens' if first.record.label.in_tokens else 'batch'} {sizes})" if sizes else "")
        + f"{detail}.{compared}",
        severity=Severity.WARNING,
        proof=Proof.MEASURED if sure else Proof.SUSPECTED,
        fix=_FIX[reason],
        culprit=_culprit(reason, key, first),
        step=first.record.index,
        key=key,
        rank=run.lanes[first.record.lane].rank,
        evidence={
            "steps": [step.record.index for step in group[:_LISTED_STEPS]],
            "count": len(group),
            "sizes": sorted({s for step in group if (s := step.record.label.size) is not None})[:50],
            "median_ms": slow,
            "replayed_median_ms": fast,
            "buckets": list(run.buckets.sizes),
            "buckets_from": run.buckets.origin,
        },
    )


def _culprit(reason: Reason, key: str, first: Judged) -> Culprit | None:
    if reason is Reason.FAILED and first.miss:
        return Culprit("launch", first.miss.detail)
    return Culprit("bucket", key) if key else None


def _gate(gate: Gate) -> Finding:
    return Finding(
        code=GATE,
        message=f"{gate.option} is not met: {gate.message}.",
        severity=Severity.ERROR,
        proof=Proof.MEASURED,
        fix="See the warnings for the reasons of the misses, or change the gate.",
        culprit=Culprit("gate", gate.option + (f" {gate.key}" if gate.key else "")),
    )


def _failed_captures(run: Run) -> list[Finding]:
    """Captures that broke outside of steps; those inside are reasons of their steps."""
    errors: dict[str, int] = defaultdict(int)
    inside = [(s.record.lane, s.record.start_ns, s.record.end_ns) for s in run.decode if s.record.captures]
    for capture in run.captures:
        covered = any(lane == capture.lane and a <= capture.start_ns <= b for lane, a, b in inside)
        if capture.error and not covered:
            errors[capture.error] += 1
    return [
        Finding(
            code=FAILED,
            message=f"{count} of {len(run.captures)} captures failed: {error}.",
            severity=Severity.WARNING,
            proof=Proof.MEASURED,
            fix=_FIX[Reason.FAILED],
            culprit=Culprit("launch", error),
            evidence={"captures": count},
        )
        for error, count in errors.items()
    ]


def _side_thread(run: Run) -> list[Finding]:
    found = [
        step
        for step in run.decode
        if step.ruling.by_side_thread or step.record.side_graph_launches or step.record.side_loose_launches > FEW
    ]
    if not found:
        return []
    graphs = sum(step.record.side_graph_launches for step in found)
    loose = sum(step.record.side_loose_launches for step in found)
    return [
        Finding(
            code=SIDE_THREAD,
            message=f"In {len(found)} of {len(run.decode)} decode steps another thread launched {graphs} graphs and "
            f"{loose} kernels while the step's range was open; by the label's thread alone they would be missed.",
            severity=Severity.WARNING,
            proof=Proof.MEASURED,
            fix="Open the step's range on the thread that launches, so that launches can be attributed for certain.",
            culprit=Culprit("thread", "another than the one that opens the range"),
            step=found[0].record.index,
            evidence={"steps": [s.record.index for s in found[:_LISTED_STEPS]], "graphs": graphs, "kernels": loose},
        )
    ]


def _without_labels(run: Run) -> list[Finding]:
    ways = [trace.steps_from for trace in run.traces if trace.steps and trace.steps_from.startswith("no labels")]
    if not ways:
        return []
    return [
        Finding(
            code=WITHOUT_LABELS,
            message=f"Steps have {ways[0]}; batch sizes, padding, and prefill against decode are not known.",
            severity=Severity.NOTE,
            proof=Proof.MEASURED,
            fix='Put a range around each step, such as torch.cuda.nvtx.range(f"decode step={i} bs={n} bucket={b}").',
        )
    ]
