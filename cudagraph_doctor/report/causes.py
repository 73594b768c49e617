"""A checkup as text: what is wrong, why and what to do of each root cause, its evidence; then what was looked at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cudagraph_doctor.findings import Cause, Finding, Outcome, Proof, Report, Status, first_step
from cudagraph_doctor.report import finding_text
from cudagraph_doctor.report.sentences import counted
from cudagraph_doctor.report.view import View
from cudagraph_doctor.rules import RULES

CHECK = "checkup"
_PROOF = {
    Proof.CONFIRMED: "confirmed: mending it for one replay, or forcing it, decides the result",
    Proof.MEASURED: "measured: there every time, never in its control",
    Proof.SUSPECTED: "suspected only: it fits what was seen, and does not fail the run",
}
_LOOKED_AT = {
    "backend": "backend",
    "steps": "steps",
    "graphs": "graphs replayed",
    "batch sizes": "batch sizes",
    "captures": "captures",
    "operations while a capture was open": "operations in captures",
    "runs": "runs of a step",
    "state bytes": "bytes of state",
    "regions": "regions of memory named",
    "unnamed": "regions without a name",
    "addresses": "addresses in nodes read",
    "unreadable nodes": "nodes that cannot be read",
    "captures compared": "captures compared",
    "graph launches": "graph launches",
}
"""What is told of `Outcome.checked`, in this order: key -> words."""


def shown(report: Report, number: int, cause: Cause, view: View) -> RenderableType:
    """One root cause."""
    findings = report.findings
    leading = findings[cause.leading]
    step = first_step(findings[position] for position in (cause.leading, *cause.others))
    rows = Table.grid(padding=(0, 2))
    rows.add_column(min_width=8)
    rows.add_column(overflow="fold")
    rows.add_row("Wrong", Text(wrong(leading)))
    if leading.culprit:
        rows.add_row("Why", finding_text.culprit(leading.culprit, _value))
    rows.add_row("Do", Text(leading.fix))
    for at, words in enumerate(finding_text.lines(leading)):
        rows.add_row("" if at else "Where", words)
    for at, line in enumerate(cause.evidence):
        rows.add_row("" if at else "Evidence", Text(f"· {line}"))
    rows.add_row("Proof", Text(_PROOF[leading.proof]))
    for position, why in zip(cause.others, cause.joined, strict=True):
        rows.add_row("Same", Text(f"{_check(report, position)}: {_title(findings[position])}; {why}"))
        if view.verbose:
            rows.add_row("", Text(findings[position].message))
    if cause.repro:
        rows.add_row("Repro", Text(cause.repro))
    rows.add_row("More", Text(f"cudagraph-doctor explain {leading.code}"))
    return Group(finding_text.title(number, replace(leading, step=step)), Padding(rows, (0, 0, 0, 3)))


def wrong(finding: Finding) -> str:
    """The message without the particulars that the evidence tells."""
    return finding.message.split(" Step ")[0].split(": logits")[0]


def outcomes(report: Report, view: View) -> Iterator[RenderableType]:
    """What each check looked at, a line or two; then, once, what was not checked by any."""
    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column()
    table.add_column(overflow="fold")
    for outcome in report.outcomes:
        table.add_row(f"  {outcome.check}", _status(outcome), Text(_told(outcome)))
    yield Text("Checked:", "bold")
    yield table
    listed: dict[str, list[str]] = {}
    for outcome in report.outcomes:
        for sentence in outcome.not_checked:
            listed.setdefault(sentence, []).append(outcome.check)
    if listed:
        yield Text("")
        yield Text("Not checked:", "bold")
    every = len([o for o in report.outcomes if o.not_checked])
    for sentence, checks in listed.items():
        by = f" ({', '.join(checks)})" if len(checks) < every else ""
        bullet = Table.grid(padding=(0, 1))
        bullet.add_row("-", Text(f"{sentence}{by}"))
        yield Padding(bullet, (0, 0, 0, 2))
    for outcome in report.outcomes:
        if outcome.traceback and view.debug:
            yield outcome.traceback


def _status(outcome: Outcome) -> Text:
    style = "yellow" if outcome.status in (Status.INCONCLUSIVE, Status.ERRORED) else ""
    return Text(outcome.status.value, style)


def _told(outcome: Outcome) -> str:
    if outcome.reason:
        return f"{outcome.reason.rstrip('.')}. {outcome.fix}".strip()
    parts = []
    for key, words in _LOOKED_AT.items():
        value = outcome.checked.get(key)
        if isinstance(value, list):
            parts.append(f"{words} {', '.join(map(str, value))}")
        elif value is not None and (value or key not in ("unnamed",)):
            parts.append(f"{words} {value}" if isinstance(value, str) else counted(value, words))
    return "; ".join([*parts, f"{outcome.seconds:.1f} s"])


def _check(report: Report, position: int) -> str:
    checks = [outcome.check for outcome in report.outcomes for _ in outcome.findings]
    return checks[position]


def _title(finding: Finding) -> str:
    rule = RULES.get(finding.code)
    return f"{finding.code} {rule.name}" if rule else finding.code


def _value(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 200 else f"{text[:197]}..."
