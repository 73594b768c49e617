"""The terminal's view of the gate: which findings were accepted, what is gone, and which demands were not met."""

from __future__ import annotations

from collections.abc import Iterator

from cudagraph_doctor.findings import Report
from cudagraph_doctor.report import sentences

_SHORT = 100
"""Characters of an accepted finding's message."""


def lines(report: Report) -> Iterator[str]:
    """What there is to say, a line each; nothing where nothing was accepted, gone or demanded in vain."""
    for finding in report.findings:
        if finding.accepted:
            what = finding.message if len(finding.message) <= _SHORT else f"{finding.message[:_SHORT]}..."
            yield f"Not counted: {sentences.title(finding.code)}, {sentences.acceptance(finding.accepted)}. {what}"
    if report.gate:
        yield from (f"Fixed: {text}" for text in report.gate.fixed)
        yield from (f"Unused: {text}" for text in report.gate.unused)
