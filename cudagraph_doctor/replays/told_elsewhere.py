"""What was forced rather than healed, as flags: by running freely, or by filling memory that nobody owns."""

from __future__ import annotations

from collections.abc import Sequence

from cudagraph_doctor.findings import Finding, Proof
from cudagraph_doctor.replays.accuse import Accused
from cudagraph_doctor.replays.freed import Lost
from cudagraph_doctor.replays.model import Flag, History, Trial

CODES = {"CGD104": "CGD313", "CGD311": "CGD311", "CGD312": "CGD312"}
"""Rule that a finding has -> rule of `inputs`."""


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
            evidence={**finding.evidence, "cause": "order", "told": finding.message},
            location=finding.location,
            related=finding.related,
        )
        accused.flags.append(flag)
        if finding.proof is Proof.CONFIRMED and replay is not None:
            accused.trials.append(Trial(replay, (len(accused.flags) - 1,), True, 0))


def add_lost(accused: Accused, found: Sequence[Lost], history: History) -> None:
    """Add memory that is freed, and, of steps that are wrong and not explained, memory that has another owner.

    Steps that are wrong by a graph that reads such memory are explained by it, as long as it does.
    """
    unexplained = {case.at.key for case in accused.unexplained}
    for one in found:
        code, name, kind = _whose(one)
        known = any((flag.code, flag.name) == (code, name) for flag in accused.flags)
        if known or (one.owner and one.at.key not in unexplained) or one.address in accused.mended:
            continue
        replay = next((n for n, replay in enumerate(history.replays) if replay.index == one.at.index), None)
        evidence = {"cause": "forced", "bytes": one.bytes}
        accused.flags.append(Flag(code, replay, name=name, kind=kind, where=f"read by {one.reader}", evidence=evidence))
        if replay is not None:
            accused.trials.append(Trial(replay, (len(accused.flags) - 1,), True, one.bytes))
    explained = {one.at.key for one in found}
    accused.unexplained = [case for case in accused.unexplained if case.at.key not in explained]


def _whose(one: Lost) -> tuple[str, str, str]:
    """Rule, name and kind."""
    if one.belongs:
        return "CGD308", one.belongs, "weight"
    return ("CGD306", one.owner, "state") if one.owner else ("CGD307", "freed memory", "unnamed")
