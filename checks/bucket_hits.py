"""`buckets`: did each decode step of a trace replay its bucket's graph, and if not, why?

Reads downwards: `run` reads the traces (SQL, in `traces/`), judges their steps (plain Python, in `misses/`), and says
what came out. Nothing here or below imports torch.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cudagraph_doctor.findings import Finding, Outcome, Severity, Status
from cudagraph_doctor.misses import gates, summary, wording
from cudagraph_doctor.misses.gates import Gate
from cudagraph_doctor.misses.judged import Demands, Run, judge_all
from cudagraph_doctor.progress import Progress
from cudagraph_doctor.traces import labels, nsys_tool
from cudagraph_doctor.traces.collect import collect
from cudagraph_doctor.traces.sniff import Form, sniff
from cudagraph_doctor.traces.steps import Trace

NAME = "buckets"
RULES = wording.RULES
NEEDS = frozenset({"trace"})


def run(paths: Sequence[Path], demands: Demands, step_pattern: str, progress: Progress) -> Outcome:
    """Judge the steps of one or more traces together.

    Args:
        paths: the files; only read.
        demands: buckets, expectations and gates.
        step_pattern: the user's own pattern for step labels, "" for the built-in ones.
        progress: told which trace is being read.

    Raises:
        UsageError: a file is no trace, or the pattern is none.
        Inconclusive: a trace is damaged or lacks what is needed.
    """
    started = time.perf_counter()
    own = labels.user_family(step_pattern) if step_pattern else None
    forms = [sniff(path) for path in paths]  # all of them, before any work
    traces = []
    progress.stage("reading traces", len(paths))
    for path, form in zip(paths, forms, strict=True):
        traces.append(read(path, form, own))
        progress.advance(path.name)
    return judge(traces, demands, time.perf_counter() - started)


def read(path: Path, form: Form, own: labels.Family | None) -> Trace:
    """One trace, exported first if it is an nsys report."""
    if form is not Form.NSYS_REP:
        return collect(path, form, own)
    with tempfile.TemporaryDirectory(prefix="cudagraph-doctor-") as folder:
        exported = Path(folder) / f"{path.stem}.sqlite"
        nsys_tool.export(path, exported, nsys_tool.find())
        return collect(exported, sniff(exported), own)


def judge(traces: Sequence[Trace], demands: Demands, seconds: float = 0.0) -> Outcome:
    """The outcome of traces that were read: pure."""
    judged = judge_all(traces, demands)
    numbers = summary.summarize(judged)
    demanded = gates.check(judged, demands, numbers)
    findings = wording.findings(judged, demanded)
    status, reason, fix = _status(judged, demanded, findings)
    return Outcome(
        check=NAME,
        status=status,
        reason=reason,
        fix=fix,
        not_checked=_not_checked(judged, demanded),
        checked={
            "steps": len(judged.steps),
            "graph launches": sum(trace.facts.get("graph launches", 0) for trace in traces),
            "traces": [_about(trace) for trace in traces],
            "summary": numbers,
            "gates": [{"option": gate.option, "met": gate.met, "message": gate.message} for gate in demanded],
        },
        steps=wording.steps(judged),
        findings=tuple(findings),
        rules=RULES,
        seconds=seconds,
    )


def _status(run: Run, demanded: Sequence[Gate], findings: Sequence[Finding]) -> tuple[Status, str, str]:
    unanswered = [gate for gate in demanded if gate.met is None]
    spoken = any(finding.severity is not Severity.NOTE for finding in findings)
    labelled = any(trace.unmatched_labels for trace in run.traces)
    if not run.steps:
        why = "no step was found: no label names one, and no graph was launched"
        if labelled:
            why = "no step was found: no label fits a known pattern, and no graph was launched"
        return Status.INCONCLUSIVE, why, "Say how your steps are labelled: --step-pattern '^decode bs=(?P<batch>\\d+)'."
    if all(summary.is_open(step) for step in run.decode):
        whys = [step.ruling.why for step in run.decode if step.ruling.why]
        why = "no decode step was found among the steps" if not run.decode else "no step could be judged"
        return Status.INCONCLUSIVE, why + (f": {whys[0]}" if whys else ""), "Record a longer trace with labelled steps."
    if unanswered:
        return (
            Status.INCONCLUSIVE,
            f"{unanswered[0].option} cannot be answered: {unanswered[0].message}",
            "Label the steps, name the buckets with --buckets, or record in node mode; see what was not checked.",
        )
    return (Status.FOUND if spoken else Status.PASSED), "", ""


def _not_checked(run: Run, demanded: Sequence[Gate]) -> tuple[str, ...]:
    said: list[str] = []
    several = len(run.traces) > 1
    for trace in run.traces:
        where = f"{trace.source}: " if several else ""
        said += [where + sentence for sentence in trace.missing]
        if trace.unmatched_labels:
            examples = f', for example "{trace.near_labels[0]}"' if trace.near_labels else ""
            said.append(f"{where}{trace.unmatched_labels} ranges have labels that name no step{examples}")
        if trace.outside_launches:
            graphs = f" ({trace.outside_graph_launches} of graphs)" if trace.outside_graph_launches else ""
            said.append(f"{where}{trace.outside_launches} launches{graphs} lie in no step")
    unknown: dict[str, int] = {}
    for step in run.decode:
        if summary.is_open(step) and step.ruling.why:
            unknown[step.ruling.why] = unknown.get(step.ruling.why, 0) + 1
    said += [f"{count} of {len(run.decode)} steps could not be judged: {why}" for why, count in unknown.items()]
    if run.decode and not run.buckets.sizes:
        said.append("padding: nothing tells how large the buckets are (--buckets 1,2,4,8)")
    elif run.decode and not run.buckets.exact:
        said.append("padding is a lower bound: buckets are the largest batches that graphs served (--buckets 1,2,4,8)")
    said += [f"{gate.option}: {gate.message}" for gate in demanded if gate.met is None]
    return tuple(dict.fromkeys(said))


def _about(trace: Trace) -> dict[str, Any]:
    return {
        "file": trace.source,
        "kind": trace.kind,
        "version": trace.version,
        "graph_mode": trace.graph_mode,
        "steps_from": trace.steps_from,
        "lanes": [lane.name for lane in trace.lanes],
        "steps": len(trace.steps),
        "captures": len(trace.captures),
        "unmatched_labels": trace.unmatched_labels,
        **trace.facts,
    }
