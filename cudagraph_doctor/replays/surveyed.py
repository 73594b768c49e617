"""What a survey with poisoned inputs (`poison.py`) brings to the outcome of the steps that are played after it.

It accuses nobody: a finding is there without it, and gets it as evidence; what staging leaves alone and is right at
every step played is said to be unknown. Plain Python.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from cudagraph_doctor.findings import Finding, Outcome


@dataclass(frozen=True, slots=True)
class LeftAlone:
    """An input of which staging left some alone, though the step follows it."""

    name: str
    step: int
    """The first step at which it was seen."""
    rows: int
    key: str
    values: int
    """Numbers that were left alone."""
    of: int
    """All that it has."""

    def __str__(self) -> str:
        many = "row" if self.rows == 1 else "rows"
        return (
            f"at step {self.step} ({self.rows} {many}, graph {self.key}) staging leaves {self.values} of its "
            f"{self.of} values as they were, and the step follows them"
        )


@dataclass(frozen=True, slots=True)
class Surveyed:
    """What a survey found."""

    steps: int
    """To be played unpoisoned, as `Settings.steps`."""
    poisoned: tuple[str, ...] = ()
    """Inputs that were."""
    left_alone: tuple[LeftAlone, ...] = ()
    not_poisoned: dict[str, str] = field(default_factory=dict)
    """Input -> why not."""


def added(outcome: Outcome, surveyed: Surveyed) -> Outcome:
    """The outcome of the steps that were played unpoisoned, with what the survey brings."""
    findings = tuple(_with_evidence(finding, surveyed) for finding in outcome.findings)
    accused = {name for finding in outcome.findings for name in _accused(finding)}
    said = [
        f"whether `{one.name}` may stay as it is: {one}; they were right at all steps played"
        for one in surveyed.left_alone
        if one.name not in accused
    ]
    said += [f"`{name}` with poison: {reason}" for name, reason in surveyed.not_poisoned.items()]
    checked = {**outcome.checked, "inputs poisoned": len(surveyed.poisoned)}
    return replace(outcome, findings=findings, checked=checked, not_checked=(*outcome.not_checked, *said))


def _with_evidence(finding: Finding, surveyed: Surveyed) -> Finding:
    names = _accused(finding)
    told = {one.name: str(one) for one in surveyed.left_alone if one.name in names}
    return replace(finding, evidence={**finding.evidence, "poison": told}) if told else finding


def _accused(finding: Finding) -> Collection[str]:
    own = finding.culprit.name if finding.culprit else ""
    return {own, *finding.evidence.get("names", ())}
