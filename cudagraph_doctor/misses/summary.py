"""A run in numbers: hit rate, padding, launch tax, who holds the gaps, ranks compared; and the one sentence."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from cudagraph_doctor.misses.judged import Judged, Run
from cudagraph_doctor.misses.reasons import Reason
from cudagraph_doctor.misses.verdict import Verdict
from cudagraph_doctor.traces.labels import Stage

BUSY = 0.95
"""Share of a step's time in which the GPU works, from which on a graph could bring little."""
_STRAGGLE = 1.1
"""A rank whose submit takes this much longer than the median of the others is named."""


def ms(ns: float | None) -> float | None:
    """Nanoseconds as milliseconds, to the microsecond."""
    return None if ns is None else round(ns / 1e6, 3)


def share(part: float, whole: float) -> float | None:
    """A share to four digits; None of nothing."""
    return round(part / whole, 4) if whole else None


def summarize(run: Run) -> dict[str, Any]:
    """All numbers, as plain JSON."""
    decode = run.decode
    hits = [step for step in decode if step.hit]
    low, high = hit_rate_bounds(decode)
    return {
        "sentence": sentence(run),
        "decode_steps": len(decode),
        "other_steps": len(run.steps) - len(decode),
        "verdicts": {v.value: n for v in Verdict if (n := sum(step.verdict is v for step in decode))},
        "reasons": dict(Counter(step.miss.reason.value for step in decode if step.miss)),
        "hit_rate": {"by_steps": low, "at_most": high, "by_time": _hit_rate_by_time(decode)},
        "eager_steps": sum(step.verdict is Verdict.EAGER for step in decode),
        "usual_launches": run.usual,
        "buckets": _buckets(run),
        "padding": _padding(hits),
        "launch_tax": _launch_tax(decode),
        "gap_between_replays": [_gap(run, i) for i in range(len(run.gaps))],
        "overlap_of_streams": _overlap(run.steps),
        "ranks": _ranks(run),
        "straggler": _straggler(run),
        "ranks_apart": _apart(run),
    }


def hit_rate_bounds(decode: Sequence[Judged]) -> tuple[float | None, float | None]:
    """The hit rate if all steps that are not known count as misses, and if they count as hits."""
    hits = sum(step.hit for step in decode)
    open_ = sum(is_open(step) for step in decode)
    return share(hits, len(decode)), share(hits + open_, len(decode))


def is_open(step: Judged) -> bool:
    """Neither a hit nor a miss: its verdict is unknown, or it may be a prefill (no label says)."""
    unknown = step.verdict is Verdict.UNKNOWN and not step.miss
    return unknown or (step.verdict is Verdict.EAGER and step.miss is None and not step.hit)


def typical_ms(steps: Iterable[Judged]) -> float | None:
    """The median time of steps."""
    times = [step.time_ns for step in steps]
    return ms(median(times)) if times else None


def span(numbers: Iterable[int | None]) -> str:
    """`5`, `5 and 7`, `33 to 40`."""
    found = sorted({number for number in numbers if number is not None})
    if len(found) > 2:
        return f"{found[0]} to {found[-1]}"
    return " and ".join(map(str, found))


def sentence(run: Run) -> str:
    """What happened, in one sentence."""
    decode = run.decode
    if not decode:
        return f"No decode step in {len(run.steps)} steps." if run.steps else "No step was found."
    hits = [step for step in decode if step.hit]
    piecewise = sum(step.verdict is Verdict.PIECEWISE for step in hits)
    how = "" if not piecewise else " piecewise" if piecewise == len(hits) else f" ({piecewise} of them piecewise)"
    updated = sum(step.miss is not None and step.miss.reason is Reason.EXEC_UPDATE for step in hits)
    parts = [f"{len(hits)} replayed{how}"] + ([f"{updated} of these with an exec update"] if updated else [])
    groups: dict[Reason, list[Judged]] = defaultdict(list)
    for step in decode:
        if step.miss and not step.hit:
            groups[step.miss.reason].append(step)
    for reason, steps in sorted(groups.items(), key=lambda item: -len(item[1])):
        parts.append(f"{len(steps)} {_because(reason, steps, run, hits)}")
    open_ = [step for step in decode if not step.hit and step.miss is None]
    if open_:
        unlabelled = sum(step.verdict is Verdict.EAGER for step in open_)
        if unlabelled:
            parts.append(f"{unlabelled} eager (decode or prefill: no label says)")
        if len(open_) - unlabelled:
            parts.append(f"{len(open_) - unlabelled} not known")
    what = "steps" if all(step.record.label.stage is Stage.UNKNOWN for step in decode) else "decode steps"
    return f"{len(decode)} {what if len(decode) > 1 else what[:-1]}: {', '.join(parts)}."


def _because(reason: Reason, steps: list[Judged], run: Run, hits: list[Judged]) -> str:
    sizes = span(step.record.label.size for step in steps)
    batch = "tokens" if any(step.record.label.in_tokens for step in steps) else "batch"
    slower = _instead(steps, hits)
    match reason:
        case Reason.ABOVE_LARGEST:
            verb = "are" if batch == "tokens" else "is"
            return f"eager because {batch} {sizes} {verb} above the largest bucket {run.buckets.largest}{slower}"
        case Reason.HOLE:
            return f"eager because no bucket serves {batch} {sizes}{slower}"
        case Reason.PADDING_OFF:
            return f"eager because {batch} {sizes} would need padding, and no step was padded{slower}"
        case Reason.PREFILL:
            return f"eager because prefill tokens were mixed in{slower}"
        case Reason.SPECULATION:
            return f"eager because {sizes} tokens fit no bucket of whole drafts{slower}"
        case Reason.NEVER_LAUNCHED:
            return "eager although graphs were captured: none was ever launched"
        case Reason.NO_GRAPHS:
            return "eager: no graph appears anywhere in the trace"
        case Reason.BYPASSED:
            return f"eager though a bucket fits{slower}"
        case Reason.LOST:
            return (
                f"eager because nothing was replayed any more {steps[0].miss.detail if steps[0].miss else ''}{slower}"
            )
        case Reason.CAPTURE:
            return "captured in the step"
        case Reason.KEY_TOO_WEAK:
            return "recaptured, because several graphs share one key"
        case Reason.UNUSUAL:
            return "with an unusual number of graph launches"
        case Reason.FAILED:
            return f"in which a call failed: {steps[0].miss.detail if steps[0].miss else ''}"
        case Reason.OUTSIDE_GRAPH:
            kind = "piecewise" if all(step.verdict is Verdict.PIECEWISE for step in steps) else "partly eager"
            return f"{kind}{slower}"
        case Reason.EXEC_UPDATE:
            return "with an exec update in the step"


def _instead(steps: list[Judged], hits: list[Judged]) -> str:
    slow, fast = typical_ms(steps), typical_ms(hits)
    if slow is None or fast is None or slow < 1.5 * fast:
        return ""
    return f" ({_three(slow)} ms instead of {_three(fast)})"


def _three(number: float) -> str:
    return f"{number:.0f}" if number >= 10 else f"{number:.2g}"


def _hit_rate_by_time(decode: Sequence[Judged]) -> float | None:
    return share(sum(step.time_ns for step in decode if step.hit), sum(step.time_ns for step in decode))


def _buckets(run: Run) -> dict[str, Any]:
    """Each bucket: steps that it served, and the rows in them."""
    served: dict[int, list[Judged]] = defaultdict(list)
    for step in run.decode:
        if step.bucket is not None and step.hit:
            served[step.bucket].append(step)
    sizes = sorted({*run.buckets.sizes, *served})
    return {
        "sizes": list(run.buckets.sizes),
        "origin": run.buckets.origin,
        "exact": run.buckets.exact,
        "never_used": [size for size in run.buckets.sizes if size not in served] if run.buckets.exact else [],
        "table": [
            {
                "bucket": size,
                "steps": len(served[size]),
                "sizes": span(step.record.label.size for step in served[size]),
                "padding_share": _padding(served[size])["share"],
                "median_ms": typical_ms(served[size]),
                "submit_ms": _median(step.record.submit_ns for step in served[size]),
                "gpu_ms": _median(step.record.gpu_busy_ns for step in served[size]),
            }
            for size in sizes
        ],
    }


def _padding(hits: Sequence[Judged]) -> dict[str, Any]:
    known = [step for step in hits if step.padding is not None]
    rows = sum(step.padding or 0 for step in known)
    gpu = sum((step.record.gpu_busy_ns or 0) * (step.padding or 0) / (step.bucket or 1) for step in known)
    return {
        "steps_known": len(known),
        "steps_unknown": len(hits) - len(known),
        "rows": rows if known else None,
        "share": share(rows, sum(step.bucket or 0 for step in known)),
        "gpu_ms_estimated": ms(gpu) if any(step.record.gpu_busy_ns for step in known) else None,
    }


def _launch_tax(decode: Sequence[Judged]) -> dict[str, Any]:
    """Host time to submit against GPU time, replayed and eager."""
    told: dict[str, Any] = {}
    groups = {
        "replayed": [step for step in decode if step.hit],
        "eager": [step for step in decode if step.verdict is Verdict.EAGER],
    }
    for name, steps in groups.items():
        submit, gpu = (_median(s.record.submit_ns for s in steps), _median(s.record.gpu_busy_ns for s in steps))
        busy = [
            (s.record.gpu_busy_ns or 0) / s.record.gpu_span_ns
            for s in steps
            if s.record.gpu_span_ns and s.record.busy_exact
        ]
        if submit is not None:
            told[name] = {
                "steps": len(steps),
                "submit_ms": submit,
                "in_calls_ms": _median(s.record.call_ns for s in steps),
                "gpu_ms": gpu,
                "gpu_busy_share": round(median(busy), 4) if busy else None,
            }
    told["sentence"] = _tax_sentence(told)
    return told


def _tax_sentence(told: dict[str, Any]) -> str:
    said = []
    for name in ("replayed", "eager"):
        if name in told:
            numbers = told[name]
            gpu = f" for {numbers['gpu_ms']:g} ms of GPU work" if numbers["gpu_ms"] is not None else ""
            verb = "take" if numbers["steps"] > 1 else "takes"
            what = f"{name} steps {verb}" if numbers["steps"] > 1 else f"the {name} step {verb}"
            said.append(f"{what} {numbers['submit_ms']:g} ms to submit{gpu}")
    if not said:
        return ""
    busy = (told.get("eager") or {}).get("gpu_busy_share")
    ending = ""
    if busy is not None and busy >= BUSY:
        ending = f"; the GPU was busy {busy:.0%} of an eager step anyway, so graphs bring little there"
    elif busy is not None:
        ending = f"; in an eager step the GPU waits {1 - busy:.0%} of the time"
    return "; ".join(said) + ending


def _gap(run: Run, i: int) -> dict[str, Any]:
    gap = run.gaps[i]
    held = {
        "copies": gap.copies_ns,
        "allocation": gap.allocation_ns,
        "sync": gap.sync_ns,
        "launches": gap.launches_ns,
        "other CUDA calls": gap.other_ns,
        "Python": gap.python_ns,
    }
    longest = max(held, key=lambda name: held[name])
    return {
        "lane": run.lanes[gap.lane].name,
        "gaps": gap.count,
        "mean_ms": ms(gap.total_ns / gap.count) if gap.count else None,
        "shares": {name: share(time, gap.total_ns) for name, time in held.items()},
        "held_by": longest,
    }


def _overlap(steps: Sequence[Judged]) -> float | None:
    """The median over all steps with two streams."""
    found = [step.record.overlap for step in steps if step.record.overlap is not None]
    return round(median(found), 4) if found else None


def _ranks(run: Run) -> list[dict[str, Any]]:
    table = []
    for i, lane in enumerate(run.lanes):
        decode = [step for step in run.decode if step.record.lane == i]
        table.append(
            {
                "lane": lane.name,
                "source": lane.source,
                "decode_steps": len(decode),
                "hits": sum(step.hit for step in decode),
                "eager": sum(step.verdict is Verdict.EAGER for step in decode),
                "submit_ms": _median(step.record.submit_ns for step in decode),
                "gpu_ms": _median(step.record.gpu_busy_ns for step in decode),
            }
        )
    return table


def _straggler(run: Run) -> dict[str, Any] | None:
    """The rank whose submit is slowest, if it is slower than the others by more than a little."""
    submits = sorted((row["submit_ms"], row["lane"]) for row in _ranks(run) if row["submit_ms"] is not None)
    if len(submits) < 2:
        return None
    slowest, name = submits.pop()
    others = median(value for value, _ in submits)
    if not others or slowest < _STRAGGLE * others:
        return None
    return {"lane": name, "submit_ms": slowest, "others_ms": round(others, 3), "factor": round(slowest / others, 2)}


def _apart(run: Run) -> list[dict[str, Any]]:
    """Steps at which ranks took another bucket, or not all of them replayed, among those that all ranks have."""
    by_step = _by_number(run)
    lanes = {step.record.lane for step in run.decode}
    return [
        {"step": number, "ranks": {run.lanes[lane].name: _what(step) for lane, step in sorted(found.items())}}
        for number, found in sorted(by_step.items())
        if set(found) == lanes and len({(step.bucket, step.verdict) for step in found.values()}) > 1
    ]


def uncommon_steps(run: Run) -> int:
    """Steps that could not be compared across ranks, for not all ranks have them."""
    lanes = {step.record.lane for step in run.decode}
    return sum(set(found) != lanes for found in _by_number(run).values())


def _by_number(run: Run) -> dict[int, dict[int, Judged]]:
    """Steps by the number in their labels and by lane.

    Labels without numbers are counted, which tells nothing where one rank has a step more: then no step is common.
    """
    by_step: dict[int, dict[int, Judged]] = defaultdict(dict)
    counted = any(step.record.label.number is None for step in run.decode)
    uneven = len(set(Counter(step.record.lane for step in run.decode).values())) > 1
    for i, step in enumerate(run.decode):
        number = step.record.label.number
        at = step.record.index if number is None else number
        by_step[i if counted and uneven else at][step.record.lane] = step
    return by_step


def _what(step: Judged) -> str:
    return f"{step.verdict.value} {step.bucket}" if step.bucket is not None else step.verdict.value


def _median(values: Iterable[int | None]) -> float | None:
    known = [value for value in values if value is not None]
    return ms(median(known)) if known else None
