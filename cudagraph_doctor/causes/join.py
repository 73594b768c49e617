"""A report's findings -> its root causes: the same fault seen by several checks is one, what follows from it as well.

Told apart are faults that were mended at different places. Findings that only say that something differs belong to the
fault whose repair takes the difference away; where none does, they stand for themselves.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from cudagraph_doctor.causes import wording
from cudagraph_doctor.causes.same import follows, is_named, same_fault, steps_of
from cudagraph_doctor.findings import Cause, Finding, Outcome, Proof, Report, Severity

_TELLS_MOST = ("capture", "inputs", "diff", "buckets")
"""Of findings about one fault, the one of the check that comes first here leads."""


@dataclass(slots=True)
class _Group:
    leading: int
    others: list[int] = field(default_factory=list)
    joined: list[str] = field(default_factory=list)

    @property
    def members(self) -> list[int]:
        return [self.leading, *self.others]


def joined(report: Report) -> Report:
    """The report with its causes. Notes are no faults and belong to none."""
    findings = report.findings
    checks = [outcome.check for outcome in report.outcomes for _ in outcome.findings]
    spoken = [number for number, finding in enumerate(findings) if finding.severity is not Severity.NOTE]
    spoken.sort(key=lambda number: _order(findings[number], checks[number]))
    left = {outcome.check: _left(outcome) for outcome in report.outcomes}
    groups: list[_Group] = []
    for number in sorted(spoken, key=lambda number: not is_named(findings[number])):
        group, why = _home(number, groups, findings, [left[check] for check in checks])
        if group is None:
            groups.append(_Group(number))
        else:
            group.others.append(number)
            group.joined.append(why)
    groups.sort(key=lambda group: _weight([findings[number] for number in group.members]))
    causes = (
        Cause(
            group.leading,
            tuple(group.others),
            tuple(group.joined),
            tuple(wording.evidence([(checks[n], findings[n]) for n in group.members])),
        )
        for group in groups
    )
    return replace(report, causes=tuple(causes))


def _left(outcome: Outcome) -> frozenset[int]:
    """The bad steps of a check at which nothing that it tried helped."""
    mended = [steps_of(finding) for finding in outcome.findings if finding.proof is Proof.CONFIRMED]
    return frozenset(step.index for step in outcome.steps if step.verdict == "finding").difference(*mended)


def _home(
    number: int, groups: list[_Group], findings: tuple[Finding, ...], left: list[frozenset[int]]
) -> tuple[_Group | None, str]:
    """The group that the finding belongs to, and what shows it."""
    finding = findings[number]
    members = [(group, member) for group in groups for member in group.members]
    for group, member in members:
        if why := same_fault(finding, findings[member]):
            return group, why
    for group, member in members:
        if why := follows(finding, findings[member], left[member]):
            return group, why
    return None, ""


def _order(finding: Finding, check: str) -> tuple[int, int]:
    """What leads its cause comes first: proven before measured, then the check that tells most."""
    return list(Proof).index(finding.proof), _TELLS_MOST.index(check) if check in _TELLS_MOST else len(_TELLS_MOST)


def _weight(members: list[Finding]) -> tuple[bool, int]:
    """The worst cause comes first; what is only suspected last."""
    return (
        all(finding.proof is Proof.SUSPECTED for finding in members),
        -max(finding.severity.rank for finding in members),
    )
