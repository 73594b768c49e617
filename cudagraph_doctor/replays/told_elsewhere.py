"""Findings of the free-running pass as flags: what it forces is said by a rule of `inputs`. Plain data."""

from __future__ import annotations

from collections.abc import Sequence

from cudagraph_doctor.findings import Finding, Proof
from cudagraph_doctor.replays.accuse import Accused
from cudagraph_doctor.replays.model import Flag, History, Trial

CODES = {"CGD104": "CGD313"}
"""Rule of `diff` -> rule of `inputs`."""


def add(accused: Accused, findings: Sequence[Finding], history: History) -> None:
    """Add the findings that `inputs` has a rule for."""
    for finding in findings:
        code = CODES.get(finding.code)
        if code is None or finding.culprit is None:
            continue
        replay = next((n for n, one in enumerate(history.replays) if one.step == finding.step), None)
        flag = Flag(
            code,
            replay,
            name=finding.culprit.name,
            kind=finding.culprit.kind,
            where=finding.culprit.detail,
            evidence={**finding.evidence, "cause": "kept over a replay", "told": finding.message},
            location=finding.location,
            related=finding.related,
        )
        accused.flags.append(flag)
        if finding.proof is Proof.CONFIRMED and replay is not None:
            accused.trials.append(Trial(replay, (len(accused.flags) - 1,), True, 0))
