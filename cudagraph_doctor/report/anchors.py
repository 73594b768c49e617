"""Where a finding is shown in the user's repository: formats that point at lines accept no other place."""

from __future__ import annotations

from dataclasses import dataclass

from cudagraph_doctor.findings import Finding, Location, Outcome, Report
from cudagraph_doctor.report import paths


@dataclass(frozen=True, slots=True)
class Anchor:
    """A line of a file of the repository."""

    file: str
    """Relative to the top of the repository, with slashes."""
    line: int
    """From 1."""


def of_location(location: Location, report: Report) -> Anchor | None:
    """The place in the repository; None if it lies outside."""
    file = paths.in_tree(location.file, report)
    return Anchor(file, max(1, location.line)) if file else None


def of_target(report: Report) -> Anchor | None:
    """The line where the target is defined."""
    file, line = report.target.get("file"), report.target.get("line")
    return of_location(Location(str(file), int(line or 1)), report) if file else None


def of_finding(finding: Finding, report: Report) -> Anchor | None:
    """Its own line; if that is not in the repository, a related one, the nearest first; else that of the target."""
    for place in (finding.location, *finding.related):
        if place and (anchor := of_location(place, report)):
            return anchor
    return of_target(report)


def of_outcome(outcome: Outcome, report: Report) -> Anchor | None:
    """The line that ended the check; if that is not in the repository, that of the target."""
    return (of_location(outcome.location, report) if outcome.location else None) or of_target(report)
