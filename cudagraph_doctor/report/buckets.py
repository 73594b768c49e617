"""The terminal's view of a trace: the sentence, the timeline, then tables of reasons, buckets and ranks."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cudagraph_doctor.findings import Outcome, Status, Step
from cudagraph_doctor.report.view import View

CHECK = "buckets"
MARKS = {"FULL": "F", "PIECEWISE": "P", "MIXED": "M", "EAGER": "e", "CAPTURE": "C", "UNKNOWN": "?"}
"""One character a step; steps that had not to be replays (prefill, idle) are "-"."""
_ORDER = (*MARKS.values(), "-")
_STYLE = {"F": "green", "P": "cyan", "M": "yellow", "e": "red", "C": "magenta", "?": "yellow", "-": "dim"}
_MEANING = {
    "F": "full replay",
    "P": "piecewise",
    "M": "mixed",
    "e": "eager",
    "C": "capture",
    "?": "unknown",
    "-": "prefill or idle",
}
_TIMELINE_ROWS = 8
_FREE_STAGES = ("prefill", "idle")


def sentence(outcome: Outcome) -> Text:
    """The one sentence, with the run's incompleteness if there is any."""
    style = {Status.PASSED: "bold green", Status.FOUND: "bold yellow"}.get(outcome.status, "bold yellow")
    if any(finding.severity.value == "error" for finding in outcome.findings):
        style = "bold red"
    text = Text(str(outcome.checked.get("summary", {}).get("sentence", "")), style)
    if outcome.status is Status.INCONCLUSIVE:
        text.append(f"\nInconclusive: {outcome.reason}.")
    return text


def tables(outcome: Outcome, view: View) -> Iterator[RenderableType]:
    """Everything below the sentence, findings apart."""
    summary = outcome.checked.get("summary", {})
    yield from _timeline(outcome.steps, view)
    if summary:
        yield from _numbers(summary)
        yield from _buckets(summary["buckets"])
        yield from _ranks(summary)
        yield from _gaps(summary["gap_between_replays"])
    for trace in outcome.checked.get("traces", []):
        mode = f", {trace['graph_mode']} mode" if trace["kind"] == "nsys" else ""
        how = f"; steps by {trace['steps_from']}" if trace["steps_from"] else ""
        yield _indented(f"{trace['file']}: {trace['version']}{mode}{how}.")
    if view.verbose and outcome.steps:
        yield _every_step(outcome.steps)


def _timeline(steps: tuple[Step, ...], view: View) -> Iterator[RenderableType]:
    if not steps:
        return
    used = dict.fromkeys(_mark(step) for step in steps)
    yield _indented("Steps (" + ", ".join(f"{mark} {_MEANING[mark]}" for mark in _ORDER if mark in used) + "):")
    width = max(20, view.width - 6)
    for lane, listed in groupby(sorted(steps, key=_lane), key=_lane):
        marks = [_mark(step) for step in sorted(listed, key=lambda step: step.index)]
        if lane:
            yield Padding(Text(lane), (0, 0, 0, 4))
        rows = [marks[i : i + width] for i in range(0, len(marks), width)]
        for row in rows[:_TIMELINE_ROWS]:
            yield Padding(Text.assemble(*[(mark, _STYLE[mark]) for mark in row]), (0, 0, 0, 4))
        if len(rows) > _TIMELINE_ROWS:
            yield Padding(
                Text(f"... and {len(marks) - _TIMELINE_ROWS * width} more steps (--format csv)"), (0, 0, 0, 4)
            )


def _mark(step: Step) -> str:
    if step.detail.get("stage") in _FREE_STAGES:
        return "-"
    return MARKS.get(step.verdict, "?")


def _lane(step: Step) -> str:
    return str(step.detail.get("lane", ""))


def _numbers(summary: dict[str, Any]) -> Iterator[RenderableType]:
    rate = summary["hit_rate"]
    if rate["by_steps"] is not None:
        most = f" (at most {rate['at_most']:.1%})" if rate["at_most"] != rate["by_steps"] else ""
        by_time = f", {rate['by_time']:.1%} of the time" if rate["by_time"] is not None else ""
        yield _indented(f"Hit rate: {rate['by_steps']:.1%} of the steps{most}{by_time}.")
    padding = summary["padding"]
    if padding["share"] is not None:
        gpu = f", about {padding['gpu_ms_estimated']:g} ms of GPU time" if padding["gpu_ms_estimated"] else ""
        yield _indented(f"Padding: {padding['rows']} rows, {padding['share']:.1%} of the replayed rows{gpu}.")
    tax = summary["launch_tax"].get("sentence")
    if tax:
        yield _indented(f"Launch tax: {tax}.")
    if summary["overlap_of_streams"] is not None:
        yield _indented(f"Overlap of the two busiest streams in a step: {summary['overlap_of_streams']:.0%} (median).")


def _buckets(buckets: dict[str, Any]) -> Iterator[RenderableType]:
    if not buckets["table"]:
        return
    yield _indented(f"Buckets (from {buckets['origin']}):")
    yield _table(
        ("bucket", "steps", "sizes", "padding", "step ms", "submit ms", "GPU ms"),
        [
            (
                row["bucket"],
                row["steps"],
                row["sizes"] or ("never used" if row["bucket"] in buckets["never_used"] else ""),
                "" if row["padding_share"] is None else f"{row['padding_share']:.0%}",
                row["median_ms"],
                row["submit_ms"],
                row["gpu_ms"],
            )
            for row in buckets["table"]
        ],
    )


def _ranks(summary: dict[str, Any]) -> Iterator[RenderableType]:
    if len(summary["ranks"]) < 2:
        return
    yield _indented("Ranks:")
    names = ("lane", "decode_steps", "hits", "eager", "submit_ms", "gpu_ms")
    yield _table(
        ("rank", "decode steps", "hits", "eager", "submit ms", "GPU ms", "file"),
        [(*(row[name] for name in names), row["source"]) for row in summary["ranks"]],
    )
    slow = summary["straggler"]
    if slow:
        yield _indented(
            f"Straggler: {slow['lane']} submits in {slow['submit_ms']:g} ms, the others in {slow['others_ms']:g} "
            f"({slow['factor']:g} times)."
        )
    apart = summary["ranks_apart"]
    if apart:
        first = "; ".join(f"{lane} {what}" for lane, what in apart[0]["ranks"].items())
        steps = f"{len(apart)} steps, first in" if len(apart) > 1 else "1 step,"
        yield _indented(f"Ranks differ in {steps} step {apart[0]['step']}: {first}.")


def _gaps(gaps: list[dict[str, Any]]) -> Iterator[RenderableType]:
    for gap in gaps:
        held = sorted(((s, n) for n, s in gap["shares"].items() if s), reverse=True)
        parts = ", ".join(f"{name} {part:.0%}" for part, name in held)
        lane = f"{gap['lane']}: " if len(gaps) > 1 else ""
        yield _indented(f"Host time from one replay to the next: {lane}{gap['mean_ms']:g} ms (mean): {parts}.")


def _every_step(steps: tuple[Step, ...]) -> RenderableType:
    rows = []
    for step in steps:
        detail = step.detail
        why = "; ".join(str(part) for part in (detail.get("reason"), detail.get("why")) if part)
        launches = f"{detail.get('graph_launches', 0)}+{detail.get('loose_launches', 0)}"
        rows.append(
            (
                _lane(step),
                step.index,
                step.verdict,
                step.rows or "",
                step.key,
                launches,
                detail.get("time_ms"),
                detail.get("submit_ms"),
                detail.get("gpu_ms"),
                why,
            )
        )
    return _table(("rank", "step", "verdict", "rows", "bucket", "graphs+loose", "ms", "submit", "GPU", "why"), rows)


def _table(names: tuple[str, ...], rows: list[tuple[Any, ...]]) -> RenderableType:
    keep = [i for i in range(len(names)) if any(row[i] not in (None, "") for row in rows)]
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False, pad_edge=False)
    for i in keep:
        numeric = all(isinstance(row[i], int | float) or row[i] in (None, "") for row in rows)
        table.add_column(names[i], justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_cell(row[i]) for i in keep))
    return Padding(table, (0, 0, 0, 4))


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:g}" if isinstance(value, float) else str(value)


def _indented(text: str) -> Padding:
    return Padding(Text(text), (0, 0, 0, 2))
