"""Report and demands -> the same report with its `Gate`, its findings marked as accepted or not. End of the path."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field

from cudagraph_doctor import policy
from cudagraph_doctor.findings import Accepted, Finding, Gate, Report
from cudagraph_doctor.gate import coverage, selection
from cudagraph_doctor.gate.baseline import Baseline
from cudagraph_doctor.gate.selection import Selection


@dataclass(frozen=True, slots=True)
class Demands:
    """What a run is held to. None: not demanded."""

    fail_on: str = "error"
    selection: Selection = field(default_factory=Selection)
    baseline: Baseline | None = None
    min_coverage: float | None = None
    """0 to 1."""
    compare: Report | None = None
    compare_threshold: float = 0.01
    """By how much less than in `compare` may be looked at, 0 to 1."""


def judge(report: Report, demands: Demands) -> Report:
    """Hold the report to the demands. The target's own ignores (`report.target["ignore"]`) count as well."""
    own = selection.reasoned(report.target.get("ignore", {}), selection.TARGET)
    selected = Selection((*demands.selection.entries, *own))
    report = _marked(report, lambda finding: selected.why_not(finding.code))
    baseline = demands.baseline
    if baseline:
        known = baseline.accepted([finding for finding in report.findings if finding.accepted is None])
        report = _marked(report, lambda finding: finding.accepted or next(known))
    report = _as_their_roots(report)
    unmet: list[str] = []
    if demands.min_coverage is not None:
        unmet += coverage.too_little(report, demands.min_coverage)
    if demands.compare is not None:
        unmet += coverage.less_than_before(report, demands.compare, demands.compare_threshold)
    gate = Gate(
        demands.fail_on,
        baseline=baseline.file if baseline else "",
        fixed=tuple(baseline.fixed(report)) if baseline else (),
        unused=tuple(selected.unused(report)),
        unmet=tuple(unmet),
    )
    report = dataclasses.replace(report, gate=gate)
    gate = dataclasses.replace(gate, exit_code=policy.exit_code(report, demands.fail_on))
    return dataclasses.replace(report, gate=gate)


def _as_their_roots(report: Report) -> Report:
    """What several checks found of one fault is accepted, or counts, together: as the finding that leads."""
    leads = {id(other): root for root in report.roots for other in report.followers(root)}
    return _marked(report, lambda finding: leads.get(id(finding), finding).accepted)


def _marked(report: Report, why: Callable[[Finding], Accepted | None]) -> Report:
    return dataclasses.replace(
        report,
        outcomes=tuple(
            dataclasses.replace(
                outcome, findings=tuple(dataclasses.replace(f, accepted=why(f)) for f in outcome.findings)
            )
            for outcome in report.outcomes
        ),
    )
