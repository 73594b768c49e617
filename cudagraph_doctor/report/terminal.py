"""The report as text for people: the verdict first, then each finding as a story, then what was and was not checked."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cudagraph_doctor.findings import Finding, Outcome, Proof, Report, Severity, Status, Step
from cudagraph_doctor.report import audit, buckets, causes, finding_text, gate
from cudagraph_doctor.report.layout import lay_out
from cudagraph_doctor.report.printable import all_printable
from cudagraph_doctor.report.sentences import counted
from cudagraph_doctor.report.view import View
from cudagraph_doctor.rules import RULES, Rule

_PROOF = {
    Proof.CONFIRMED: "confirmed (removing or forcing the fault decided the result)",
    Proof.MEASURED: "measured (there every time, never in its control)",
    Proof.SUSPECTED: "suspected only (fits what was seen; does not fail the run)",
}
_MEASURED = {
    buckets.CHECK: "measured (counted in the trace)",
    audit.CHECK: "measured (follows from the keys and the workload)",
}
"""What "measured" means in checks that run nothing."""
_TOLD = (
    "control",
    "replayed_against_eager",
    "eager_against_eager",
    "fresh_against_eager",
    "replayed_against_fresh",
    "first_diverging_module",
    "first_bad_step_hint",
    "plain_torch_shows",
    "told_by",
    "after_eager_runs",
    "process_lost",
)
"""The evidence that is told without --verbose, in this order."""
_LONG = 120
"""Characters of evidence that are told without --verbose."""
_MARKS = {"clean": ".", "finding": "X", "note": "n", "inconclusive": "?"}


def render(report: Report, view: View) -> str:
    """The text."""
    return lay_out(_parts(all_printable(report), view), view)


def _parts(report: Report, view: View) -> Iterator[RenderableType]:
    for own in (buckets, audit):
        if [outcome.check for outcome in report.outcomes] == [own.CHECK]:
            yield from _in_numbers_first(report, view, own.sentence, own.tables)
            return
    yield _headline(report)
    if report.environment.get("backend") == "emulated":
        why = report.environment.get("backend_reason") or "as asked for"
        yield Text(f"Emulated on the CPU: {why}. No GPU kernel ran; see what was not checked.", "yellow")
    yield Text("")
    yield _verdict(report)
    if _is_checkup(report):
        yield from _causes(report, view)
        yield Text("")
        yield from causes.outcomes(report, view)
        return
    yield from _findings(report, view)
    for outcome in report.outcomes:
        yield Text("")
        yield from _outcome(outcome, view)


def _causes(report: Report, view: View) -> Iterator[RenderableType]:
    """The root causes that count, then notes, then what the gate has to say."""
    findings = report.findings
    told = [cause for cause in report.causes if not findings[cause.leading].accepted]
    for number, cause in enumerate(told, start=1):
        yield Text("")
        yield causes.shown(report, number, cause, view)
    notes = [finding for finding in report.roots[len(report.causes) :] if not finding.accepted]
    for finding in notes:
        yield Text("")
        yield Text(f"note {finding.code}: {finding.message}")
    said = list(gate.lines(report))
    if said:
        yield Text("")
    yield from map(Text, said)


def _is_checkup(report: Report) -> bool:
    return bool(report.settings.get("check") == causes.CHECK)


def _in_numbers_first(
    report: Report,
    view: View,
    sentence: Callable[[Outcome], Text],
    tables: Callable[[Outcome, View], Iterable[RenderableType]],
) -> Iterator[RenderableType]:
    """The sentence, the tables, then the findings."""
    [outcome] = report.outcomes
    yield sentence(outcome)
    if report.gate and report.gate.unmet:
        yield Text(f"Inconclusive: {'; '.join(report.gate.unmet)}.", "bold yellow")
    yield Text("")
    yield _headline(report)
    yield from tables(outcome, view)
    yield from _findings(report, view)
    if outcome.not_checked or outcome.fix:
        yield Text("")
    if outcome.fix:
        yield _indented(f"Fix: {outcome.fix}")
    yield from _not_checked(outcome)


def _findings(report: Report, view: View) -> Iterator[RenderableType]:
    counting = [finding for finding in report.findings if not finding.accepted]
    findings = sorted(counting, key=lambda f: (f.proof is Proof.SUSPECTED, -f.severity.rank))
    for number, finding in enumerate(findings, start=1):
        yield Text("")
        yield _finding(number, finding, view)
    said = list(gate.lines(report))
    if said:
        yield Text("")
    yield from map(Text, said)


def _headline(report: Report) -> Text:
    target = report.target
    spec = str(target.get("spec", "?"))
    options = [f"--target-arg {k}={v}" for k, v in target.get("arguments", {}).items()]
    if target.get("fault"):
        options.append(f"--fault {target['fault']}" + (" --twin" if target.get("twin") else ""))
    checks = ", ".join(outcome.check for outcome in report.outcomes) or "no check"
    checks = causes.CHECK if _is_checkup(report) else checks
    return Text(" ".join([f"cudagraph-doctor {report.tool.get('version', '?')}: {checks} {spec}", *options]))


def _verdict(report: Report) -> Text:
    """One sentence; two if the run is incomplete."""
    counting = [finding for finding in report.roots if not finding.accepted]
    counts = Counter(f.severity for f in counting if f.proof is not Proof.SUSPECTED)
    said = [_count(counts[s], s.value) for s in reversed(Severity) if counts[s]]
    suspected = sum(f.proof is Proof.SUSPECTED for f in counting)
    if suspected:
        said.append(_count(suspected, "suspicion"))
    checks: dict[str, list[str]] = {}
    for outcome in report.outcomes:
        if outcome.status in (Status.ERRORED, Status.INCONCLUSIVE):
            checks.setdefault(outcome.reason, []).append(outcome.check)
    unmet = report.gate.unmet if report.gate else ()
    ends = "; ".join([*(f"{_listed(those)}: {reason}" for reason, those in checks.items()), *unmet])
    if counts[Severity.ERROR] or counts[Severity.WARNING]:
        found = _root_causes(counting) if _is_checkup(report) else _listed(said)
        others = sum(finding.severity is not Severity.NOTE for finding in counting) - 1
        more = f" And {others} more: see below." if others else ""
        text = Text(f"Found {found}: {_in_short(_worst(counting).message)}{more}", "bold red")
        if ends:
            text.append(f"\nThe run is incomplete, there may be more: {ends}")
        return text
    if ends:
        errored = any(o.status is Status.ERRORED for o in report.outcomes)
        return Text(f"{'Failed' if errored else 'Inconclusive'}: {ends}", "bold yellow")
    ran = [o for o in report.outcomes if o.status is not Status.SKIPPED]
    if not ran:
        return Text("Inconclusive: no check ran.", "bold yellow")
    looked = "; ".join(
        o.check + (f" looked at {_in_numbers(o.checked, 2)}" if _in_numbers(o.checked, 2) else "") for o in ran
    )
    notes = f"; {_listed(said)}" if said else ""
    accepted = sum(bool(finding.accepted) for finding in report.findings)
    wrong, more = ("that counts", f"; {_count(accepted, 'finding')} not counted") if accepted else ("wrong", "")
    return Text(f"Clean: nothing {wrong} was found ({looked}){notes}{more}.", "bold green")


def _root_causes(counting: list[Finding]) -> str:
    return _count(sum(finding.severity is not Severity.NOTE for finding in counting), "root cause")


def _worst(findings: Iterable[Finding]) -> Finding:
    return max(findings, key=lambda f: (f.proof is not Proof.SUSPECTED, f.severity.rank))


def _in_short(message: str) -> str:
    """The message up to its first particulars."""
    return re.split(r"[:.] ", message, maxsplit=1)[0].rstrip(".") + "."


def _finding(number: int, finding: Finding, view: View) -> RenderableType:
    rule = RULES.get(finding.code)
    rows = Table.grid(padding=(0, 2))
    rows.add_column(min_width=7)
    rows.add_column(overflow="fold")
    rows.add_row("What", Text(finding.message))
    if finding.culprit:
        rows.add_row("Culprit", finding_text.culprit(finding.culprit, _value))
    if finding.location:
        rows.add_row("Where", Text("\n").join(finding_text.lines(finding)))
    rows.add_row("Proof", _proof(finding, rule, view))
    if "healed_by" in finding.evidence:
        rows.add_row("Healed", Text(f"by {_value(finding.evidence['healed_by'])}"))
    if "shown_by" in finding.evidence:
        rows.add_row("Shown", Text(_value(finding.evidence["shown_by"])))
    rows.add_row("Fix", Text(finding.fix))
    rows.add_row("More", Text(f"cudagraph-doctor explain {finding.code}"))
    return Group(finding_text.title(number, finding), Padding(rows, (0, 0, 0, 3)))


def _proof(finding: Finding, rule: Rule | None, view: View) -> Text:
    ran = bool(finding.backend)
    own = _MEASURED.get(rule.check) if rule is not None and finding.proof is Proof.MEASURED and not ran else None
    text = Text(own or _PROOF[finding.proof])
    told = [key for key in _TOLD if key in finding.evidence]
    others = [key for key in finding.evidence if key not in (*told, "healed_by", "shown_by")]
    for key in told + (others if view.verbose else []):
        value = _value(finding.evidence[key])
        shown = value if view.verbose or len(value) <= _LONG else value[:_LONG].rpartition(" ")[0] + " ..."
        text.append(f"\n{key.replace('_', ' ')}: {shown}")
    return text


def _outcome(outcome: Outcome, view: View) -> Iterator[RenderableType]:
    yield Text(f"{outcome.check}: {outcome.status.value} in {outcome.seconds:.1f} s", "bold")
    if outcome.checked:
        yield _indented(f"Checked: {_in_numbers(outcome.checked)}.")
    if outcome.reason and outcome.status is Status.SKIPPED:  # other reasons are in the first line
        yield _indented(f"Why: {outcome.reason}")
    if outcome.fix:
        yield _indented(f"Fix: {outcome.fix}")
    if outcome.steps:
        yield from _steps(outcome.steps, view)
    yield from _not_checked(outcome)
    if outcome.traceback and view.debug:
        yield outcome.traceback


def _not_checked(outcome: Outcome) -> Iterator[RenderableType]:
    if outcome.not_checked:
        yield _indented("Not checked:")
    for sentence in outcome.not_checked:
        bullet = Table.grid(padding=(0, 1))
        bullet.add_row("-", Text(sentence))
        yield Padding(bullet, (0, 0, 0, 4))


def _steps(steps: tuple[Step, ...], view: View) -> Iterator[RenderableType]:
    """One line a run of steps of one key: the rows of each, and a mark for what came out."""
    used = {step.verdict for step in steps}
    legend = ", ".join(f"{mark} {verdict}" for verdict, mark in _MARKS.items() if verdict in used)
    yield _indented(f"Steps{f' ({legend})' if legend else ''}:")
    table = Table.grid(padding=(0, 2))
    for key, played in groupby(steps, key=lambda step: step.key):
        listed = list(played)
        known = all(step.verdict in _MARKS for step in listed)
        marks = "".join(_MARKS[s.verdict] for s in listed) if known else " ".join(s.verdict for s in listed)
        name = f"bucket {key}" if key else "no graph"
        table.add_row(name, "rows " + " ".join(str(s.rows) for s in listed), marks)
    yield Padding(table, (0, 0, 0, 4))
    if view.verbose:
        for step in steps:
            if step.verdict != "clean":
                detail = "; ".join(f"{key}: {_value(value)}" for key, value in step.detail.items())
                yield Padding(Text(f"step {step.index}, {step.rows} rows: {step.verdict}; {detail}"), (0, 0, 0, 4))


def _indented(text: str) -> Padding:
    return Padding(Text(text), (0, 0, 0, 2))


def _in_numbers(checked: dict[str, Any], limit: int | None = None) -> str:
    """`12 steps, 3 graphs, batch sizes 1, 3, 4`; with a limit, that many of the plain numbers."""
    counts = [counted(value, key) for key, value in checked.items() if isinstance(value, int)]
    if limit is not None:
        return " and ".join(counts[:limit])
    others = [f"{key} {_value(value)}" for key, value in checked.items() if not isinstance(value, int)]
    return ", ".join(counts) + "".join(f"; {other}" for other in others) if counts else "; ".join(others)


def _value(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ", ".join(value)
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 200 else text[:197] + "..."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]
