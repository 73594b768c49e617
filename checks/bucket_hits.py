"""`buckets`: did each decode step of a trace replay its bucket's graph, and if not, why?

Reads downwards: `run` reads the traces (SQL, in `traces/`), judges their steps (plain Python, in `misses/`), and says
what came out. Nothing here or below imports torch.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cudagraph_doctor.errors import UsageError
from cudagraph_doctor.findings import Finding, Outcome, Severity, Status
from cudagraph_doctor.misses import gates, summary, wording
from cudagraph_doctor.misses.gates import Gate
from cudagraph_doctor.misses.judged import Demands, Run, judge_all
from cudagraph_doctor.progress import Progress
from cudagraph_doctor.traces import labels
from cudagraph_doctor.traces.read import read
from cudagraph_doctor.traces.sniff import sniff
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
        UsageError: a file is no trace or is named twice, or the pattern is none or fits no label.
        Inconclusive: a trace is damaged or lacks what is needed.
    """
    started = time.perf_counter()
    own = labels.user_family(step_pattern) if step_pattern else None
    _refuse_twice(paths)
    forms = [sniff(path) for path in paths]  # all of them, before any work
    traces = []
    progress.stage("reading traces", len(paths))
    for path, form in zip(paths, forms, strict=True):
        traces.append(read(path, own, form))
        progress.advance(path.name)
    if own:
        _refuse_misfit(own, traces)
    return judge(traces, demands, time.perf_counter() - started)


def _refuse_twice(paths: Sequence[Path]) -> None:
    twice = [path for path, count in Counter(path.resolve() for path in paths).items() if count > 1]
    if twice:
        raise UsageError(f'The trace "{twice[0]}" is named twice.', fix="Name each rank's file once.")


def _refuse_misfit(own: labels.Family, traces: Sequence[Trace]) -> None:
    """The user's pattern has to find steps, and its groups numbers: else others would be judged than he meant."""
    steps = [step for trace in traces for step in trace.steps]
    named = [step.label for step in steps if step.label.family == own.name]
    said = {"batch": [s.batch for s in named], "tokens": [s.tokens for s in named], "bucket": [s.bucket for s in named]}
    if not named:
        seen = [step.label.text for step in steps if step.label.text] + [
            t for trace in traces for t in trace.near_labels
        ]
        raise UsageError(
            f'--step-pattern "{own.pattern.pattern}" fits none of the labels.',
            seen=f'labels such as "{seen[0]}"' if seen else "no label that looks like a step's",
            fix="Write a pattern that fits your steps' labels, or leave it out.",
        )
    for group, numbers in said.items():
        if group in own.pattern.groupindex and not any(number is not None for number in numbers):
            raise UsageError(
                f'The group "{group}" of --step-pattern holds a number in none of the labels that fit.',
                seen=f'the first is "{named[0].text}"',
                fix=f"Let the group take the digits alone: (?P<{group}>\\d+).",
            )


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
        coverage=_coverage(judged),
    )


def _coverage(run: Run) -> float | None:
    """The share of the decode steps that are known to be replays or not."""
    return 1 - sum(map(summary.is_open, run.decode)) / len(run.decode) if run.decode else None


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
            unanswered[0].fix,
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
    said += _beyond(run)
    if summary.uncommon_steps(run):
        said.append(f"{summary.uncommon_steps(run)} steps that not all ranks have: they are not compared across ranks")
    ranks = Counter(lane.rank for lane in run.lanes if lane.rank is not None)
    said += [
        f"whether they are one run: {count} traces say that they are rank {rank}"
        for rank, count in sorted(ranks.items())
        if count > 1
    ]
    said += [f"{gate.option}: {gate.message}" for gate in demanded if gate.met is None]
    return tuple(dict.fromkeys(said))


def _beyond(run: Run) -> list[str]:
    """Replays of more rows than the largest bucket holds: that list is not the one that was captured."""
    largest = run.buckets.largest
    sizes = [step.record.label.size for step in run.decode if step.hit]
    above = [size for size in sizes if size is not None and largest is not None and size > largest]
    if not above or not run.buckets.exact:
        return []
    return [
        f"padding of {len(above)} replayed steps: their sizes ({summary.span(above)}) are above the largest bucket, "
        f"{largest} (from {run.buckets.origin}), so the list is not the one that was captured"
    ]


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
