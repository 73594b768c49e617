"""The report as text for people: the verdict first, then each finding as a story, then what was and was not checked."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cudagraph_doctor.findings import Culprit, Finding, Outcome, Proof, Report, Severity, Status, Step
from cudagraph_doctor.policy import is_incomplete
from cudagraph_doctor.report import paths
from cudagraph_doctor.report.layout import lay_out
from cudagraph_doctor.report.view import View
from cudagraph_doctor.rules import RULES

_STYLE = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}
_PROOF = {
    Proof.CONFIRMED: "confirmed (the fault was removed or forced, and the result followed)",
    Proof.MEASURED: "measured (differs every time, its control never)",
    Proof.SUSPECTED: "suspected only (fits what was seen; does not fail the run)",
}
_MARKS = {"clean": ".", "finding": "X", "note": "n", "inconclusive": "?"}
_FEW = 5


def render(report: Report, view: View) -> str:
    """The text."""
    return lay_out(_parts(report, view), view)


def _parts(report: Report, view: View) -> Iterator[RenderableType]:
    yield _headline(report)
    if report.environment.get("backend") == "emulated":
        why = report.environment.get("backend_reason") or "as asked for"
        yield Text(f"Emulated on the CPU: {why}. No GPU kernel ran; see what was not checked.", "yellow")
    yield Text("")
    yield _verdict(report)
    number = 0
    for outcome in report.outcomes:
        for finding in outcome.findings:
            number += 1
            yield Text("")
            yield _finding(number, finding, view)
    for outcome in report.outcomes:
        yield Text("")
        yield from _outcome(outcome, view)


def _headline(report: Report) -> Text:
    target = report.target
    spec = str(target.get("spec", "?"))
    options = [f"--target-arg {k}={v}" for k, v in target.get("arguments", {}).items()]
    if target.get("fault"):
        options.append(f"--fault {target['fault']}" + (" --twin" if target.get("twin") else ""))
    checks = ", ".join(outcome.check for outcome in report.outcomes) or "no check"
    return Text(" ".join([f"cudagraph-doctor {report.tool.get('version', '?')}: {checks} {spec}", *options]))


def _verdict(report: Report) -> Text:
    """One sentence (two if the run is incomplete)."""
    counts = Counter(f.severity for f in report.findings if f.proof is not Proof.SUSPECTED)
    suspected = sum(f.proof is Proof.SUSPECTED for f in report.findings)
    said = [_count(counts[s], s.value) for s in reversed(Severity) if counts[s]]
    if suspected:
        said.append(_count(suspected, "suspicion"))
    wrong = counts[Severity.ERROR] + counts[Severity.WARNING]
    ends = [f"{o.check}: {o.reason}" for o in report.outcomes if o.status in (Status.ERRORED, Status.INCONCLUSIVE)]
    if wrong:
        text = Text(f"Found {_listed(said)}: {_first_sentence(_worst(report.findings).message)}", "bold red")
    elif ends:
        errored = any(o.status is Status.ERRORED for o in report.outcomes)
        text = Text(f"{'Failed' if errored else 'Inconclusive'}: {'; '.join(ends)}", "bold yellow")
    elif not report.outcomes or all(o.status is Status.SKIPPED for o in report.outcomes):
        return Text("Inconclusive: no check ran.", "bold yellow")
    else:
        return Text("Clean: nothing wrong was found" + (f", {_listed(said)}." if said else "."), "bold green")
    if wrong and is_incomplete(report):
        text.append(f"\nThe run is incomplete, there may be more: {'; '.join(ends)}")
    return text


def _worst(findings: Iterable[Finding]) -> Finding:
    return max(findings, key=lambda f: (f.proof is not Proof.SUSPECTED, f.severity.rank))


def _first_sentence(message: str) -> str:
    head, stop, _ = message.partition(". ")
    return head + stop.strip()


def _finding(number: int, finding: Finding, view: View) -> RenderableType:
    rule = RULES.get(finding.code)
    title = Text(f"{number}. {finding.severity.value} {finding.code}", _STYLE[finding.severity])
    title.append(f" {rule.name}" if rule else "")
    place = [
        f"bucket {finding.key}" if finding.key else "",
        f"first at step {finding.step}" if finding.step is not None else "",
        f"rank {finding.rank}" if finding.rank is not None else "",
    ]
    title.append("".join(f", {part}" for part in place if part), "default")
    rows = Table.grid(padding=(0, 2))
    rows.add_column(min_width=7)
    rows.add_column(overflow="fold")
    rows.add_row("What", Text(finding.message))
    if finding.culprit:
        rows.add_row("Culprit", _culprit(finding.culprit))
    if finding.location:
        rows.add_row("Where", _location(finding))
    rows.add_row("Proof", _proof(finding, view))
    rows.add_row("Fix", Text(finding.fix))
    rows.add_row("More", Text(f"cudagraph-doctor explain {finding.code}"))
    return Group(title, Padding(rows, (0, 0, 0, 3)))


def _culprit(culprit: Culprit) -> Text:
    text = Text(f"{culprit.kind} ")
    text.append(culprit.name, "bold")
    if culprit.detail:
        text.append(f", {culprit.detail}")
    for label, value in (("captured", culprit.captured), ("expected", culprit.expected)):
        if value is not None:
            text.append(f"\n  {label}  {_value(value)}")
    return text


def _location(finding: Finding) -> Text:
    text = Text()
    places = [p for p in (finding.location, *finding.related) if p]
    for i, place in enumerate(places):
        text.append("\n" if i else "")
        text.append(f"{place.role}: " if place.role else "")
        text.append(paths.where(place), "bold" if i == 0 else "")
        text.append(f"\n  {place.code}" if place.code else "")
    return text


def _proof(finding: Finding, view: View) -> Text:
    text = Text(_PROOF[finding.proof])
    items = list(finding.evidence.items())
    for key, value in items if view.verbose else items[:_FEW]:
        text.append(f"\n{key.replace('_', ' ')}: {_value(value)}")
    if len(items) > _FEW and not view.verbose:
        text.append(f"\n({len(items) - _FEW} more with --verbose)")
    return text


def _outcome(outcome: Outcome, view: View) -> Iterator[RenderableType]:
    line = Text(f"{outcome.check}: {outcome.status.value} in {outcome.seconds:.1f} s", "bold")
    if outcome.checked:
        line.append(". Checked: " + ", ".join(f"{_value(v)} {k.replace('_', ' ')}" for k, v in outcome.checked.items()))
    yield line
    if outcome.status in (Status.INCONCLUSIVE, Status.ERRORED, Status.SKIPPED):
        yield Padding(Text(f"Why  {outcome.reason}"), (0, 0, 0, 2))
        if outcome.fix:
            yield Padding(Text(f"Fix  {outcome.fix}"), (0, 0, 0, 2))
    elif outcome.reason:
        yield Padding(Text(outcome.reason), (0, 0, 0, 2))
    if outcome.steps:
        yield Padding(_steps(outcome.steps, view), (0, 0, 0, 2))
    if outcome.not_checked:
        yield Text("Not checked:")
        for sentence in outcome.not_checked:
            yield Padding(Text(f"- {sentence}"), (0, 0, 0, 2))
    if outcome.traceback and view.debug:
        yield Text(outcome.traceback)


def _steps(steps: tuple[Step, ...], view: View) -> Table:
    """One line a key: the rows of each step and a mark for what came out."""
    table = Table.grid(padding=(0, 2))
    for key, played in groupby(steps, key=lambda step: step.key):
        listed = list(played)
        known = all(step.verdict in _MARKS for step in listed)
        marks = "".join(_MARKS[s.verdict] for s in listed) if known else " ".join(s.verdict for s in listed)
        table.add_row(f"bucket {key}", "rows " + " ".join(str(s.rows) for s in listed), marks)
    table.add_row("", "", "")
    used = {step.verdict for step in steps}
    table.add_row("", "", ", ".join(f"{mark} {verdict}" for verdict, mark in _MARKS.items() if verdict in used))
    return table


def _value(value: Any) -> str:
    if isinstance(value, str):
        return value
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 200 else text[:197] + "..."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]
