"""Findings and outcomes in plain sentences, for the formats that are read by other programs."""

from __future__ import annotations

from typing import Any

from cudagraph_doctor.findings import Accepted, Finding, Outcome, Proof, Report, Status
from cudagraph_doctor.report import paths
from cudagraph_doctor.rules import RULES

_BEHIND_A_NOUN = ("of", "in", "that", "while", "read", "compared", "replayed", "without")


def counted(number: int, things: str) -> str:
    """`3 captures compared`, `1 capture compared`: `things` is in the plural."""
    words = things.split()
    if number == 1 and words:
        noun = next((at for at, word in enumerate(words) if word in _BEHIND_A_NOUN), len(words)) - 1
        plural = words[noun]
        words[noun] = plural.removesuffix("es") if plural.endswith("sses") else plural.removesuffix("s")
    return " ".join([str(number), *words])


def title(code: str) -> str:
    """`CGD101 frozen-in-graph`."""
    return f"{code} {RULES[code].name}" if code in RULES else code


def short(finding: Finding) -> str:
    """What is wrong and what to do, in two paragraphs."""
    suspected = " (Suspected only: it does not fail the run.)" if finding.proof is Proof.SUSPECTED else ""
    return f"{finding.message}{suspected}\n\nFix: {finding.fix}"


def long(finding: Finding) -> str:
    """Everything that a person needs, a line each: message, culprit with both values, places, proof, fix."""
    lines = [finding.message]
    culprit = finding.culprit
    if culprit:
        lines.append(f"Culprit: {culprit.kind} {culprit.name}" + (f", {culprit.detail}" if culprit.detail else ""))
        values = (("captured", culprit.captured), ("expected", culprit.expected))
        lines += [f"  {label}: {value}" for label, value in values if value is not None]
    for place in (finding.location, *finding.related):
        if place:
            role = f"{place.role}: " if place.role else ""
            lines.append(f"Where: {role}{paths.where(place)}" + (f": {place.code}" if place.code else ""))
    healed = finding.evidence.get("healed_by")
    shown = finding.evidence.get("shown_by")
    how = f", healed by {_healer(healed)}" if healed else f", {shown}" if shown else ""
    lines.append(f"Proof: {finding.proof.value}{how}")
    lines.append(f"Fix: {finding.fix}")
    lines.append(f"More: cudagraph-doctor explain {finding.code}")
    return "\n".join(lines)


def acceptance(accepted: Accepted) -> str:
    """`ignored by pyproject.toml: the counter is only logged`."""
    place = {"known": "in the baseline ", "ignored": "by ", "not selected": "by "}[accepted.how] + accepted.where
    return f"{accepted.how} {place}" + (f": {accepted.reason}" if accepted.reason else "")


def summary(outcome: Outcome) -> str:
    """`diff: passed; 24 steps, 3 graphs`: what became of the check and what it looked at, or why it did not."""
    numbers = ", ".join(counted(value, key) for key, value in outcome.checked.items() if _is_number(value))
    if outcome.coverage is not None:
        numbers += f"{', ' if numbers else ''}{outcome.coverage:.0%} of what was to be judged"
    parts = [f"{outcome.check}: {outcome.status.value}", outcome.reason.rstrip("."), numbers, outcome.fix.rstrip(".")]
    return "; ".join(part for part in parts if part) + "."


def about(report: Report) -> dict[str, str]:
    """What was run on what, by name: the target, the backend, versions."""
    facts = {
        "cudagraph-doctor": report.tool.get("version"),
        "target": report.target.get("spec"),
        "backend": report.environment.get("backend"),
        "GPU": report.environment.get("gpu"),
        "torch": report.environment.get("packages", {}).get("torch"),
        "python": report.environment.get("python"),
    }
    return {name: str(value) for name, value in facts.items() if value}


def is_incomplete(outcome: Outcome) -> bool:
    """Whether a rule without a finding says nothing, since the check did not come to its end."""
    return outcome.status in (Status.INCONCLUSIVE, Status.ERRORED, Status.SKIPPED)


def _healer(value: Any) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return text.removeprefix("healed by ")


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
