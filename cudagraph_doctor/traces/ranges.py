"""Labelled ranges -> steps: which family's ranges are the steps of a process, and what nested labels add to them."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from cudagraph_doctor.traces.labels import FAMILIES, Label

_RANK = {family.name: family.rank for family in FAMILIES}


@dataclass(frozen=True, slots=True)
class Range:
    """A range whose label names a step, or a step that was found without labels."""

    process: int
    thread: int
    start: int
    end: int
    label: Label
    whole: bool = True


def steps_of(ranges: Iterable[Range]) -> list[Range]:
    """The steps, ordered by process and time: for each process the outermost ranges of its best family.

    The best family says sizes, has most ranges, and is the innermost of those. What its label leaves out is taken from
    ranges of the thread that lie around or inside a step.
    """
    by_process: dict[int, list[Range]] = defaultdict(list)
    for found in ranges:
        by_process[found.process].append(found)
    steps: list[Range] = []
    for process in sorted(by_process):
        candidates = by_process[process]
        chosen = _best_family(candidates)
        for thread in sorted({found.thread for found in candidates}):
            here = sorted((f for f in candidates if f.thread == thread), key=lambda f: (f.start, -f.end))
            steps += _completed(_outermost([f for f in here if f.label.family == chosen]), here)
    return sorted(steps, key=lambda s: (s.process, s.start, s.end))


def _best_family(ranges: list[Range]) -> str:
    count: dict[str, int] = defaultdict(int)
    time: dict[str, int] = defaultdict(int)
    for found in ranges:
        count[found.label.family] += 1
        time[found.label.family] += found.end - found.start
    return min(count, key=lambda name: (_RANK.get(name, 0), -count[name], time[name]))


def _outermost(ordered: list[Range]) -> list[Range]:
    kept: list[Range] = []
    for found in ordered:
        if not kept or found.start >= kept[-1].end:
            kept.append(found)
    return kept


def _completed(steps: list[Range], here: list[Range]) -> list[Range]:
    """Fill in from nested labels (an engine's own range inside ours, a sized range around an unsized one)."""
    completed = []
    around: list[Range] = []
    nearby = iter([*here, None])
    upcoming = next(nearby)
    for step in steps:
        while upcoming is not None and upcoming.start < step.end:
            around.append(upcoming)
            upcoming = next(nearby)
        around = [other for other in around if other.end > step.start]
        label = step.label
        for other in around:
            inside = step.start <= other.start and other.end <= step.end
            outside = other.start <= step.start and step.end <= other.end
            if other is not step and (inside or outside):
                label = _merged(label, other.label)
        completed.append(step if label is step.label else dataclasses.replace(step, label=label))
    return completed


def _merged(label: Label, other: Label) -> Label:
    if label.batch is not None and other.batch is not None and label.batch != other.batch:
        return label
    fresh = {
        name: getattr(other, name)
        for name in ("number", "batch", "tokens", "bucket")
        if getattr(label, name) is None and getattr(other, name) is not None
    }
    if label.stage == "unknown" and other.stage != "unknown":
        fresh["stage"] = other.stage
    if label.size is None and other.size is not None:
        fresh["in_tokens"] = other.in_tokens
    return dataclasses.replace(label, **fresh) if fresh else label
