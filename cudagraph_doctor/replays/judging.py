"""A history's flags, findings and outcome, from its data alone: the same right after a run and for a stored one.

Flags that a diagnosed step led to, and their trials, are kept: what was tried cannot be tried again without the target.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cudagraph_doctor.findings import Finding, Outcome, Status, Step
from cudagraph_doctor.replays import baked, content
from cudagraph_doctor.replays.model import Flag, History
from cudagraph_doctor.rules import RULES

CHECK = "inputs"
CODES = tuple(code for code, rule in RULES.items() if rule.check == CHECK)


def judged(history: History, accused: Sequence[Flag] | None = None, captured: baked.Judged | None = None) -> History:
    """The history with all its flags.

    Args:
        history: readings and dumps; its trials are about the first of its flags.
        accused: flags that diagnosed steps led to; None: those that it has.
        captured: what `baked.judge` says of the captures, if that is known.
    """
    if accused is None:
        accused = [flag for flag in history.flags if not flag.evidence.keys().isdisjoint(("cause", "tried"))]
    seen = {flag.region for flag in accused}
    others = [flag for flag in content.judge(history) if flag.region not in seen]
    others += baked.flags(captured or baked.judge(history.dumps), {flag.code for flag in accused})
    return replace(history, flags=(*accused, *others))


def outcome(history: History, findings: Sequence[Finding], steps: Sequence[Step] = (), runs: int = 0) -> Outcome:
    """What the check says.

    Args:
        history: what was seen.
        findings: what was made of it.
        steps: what `proof.steps` says of each; of a stored run none.
        runs: of arms.
    """
    unjudged = [step for step in steps if step.verdict == "inconclusive"]
    judged_steps = len(steps) - len(unjudged) if steps else len(history.replays)
    not_checked = list(history.not_checked)
    if unjudged:
        not_checked.append(f"{len(unjudged)} of {len(steps)} steps could not be judged")
    if history.counts.get("unnamed"):
        not_checked.append(f"what is in {history.counts['unnamed']} places of memory that nobody names")
    loud = [finding for finding in findings if finding.severity.rank > 0]
    unexplained = not loud and any(step.verdict == "finding" for step in steps)
    status = Status.FOUND if loud else Status.PASSED if judged_steps and not unexplained else Status.INCONCLUSIVE
    reason = "steps differ from eager, and what they read does not explain it" if unexplained else ""
    return Outcome(
        CHECK,
        status,
        reason=reason or ("" if judged_steps or loud else "no step could be judged"),
        fix="see what was not checked, and run `diff`" if status is Status.INCONCLUSIVE else "",
        not_checked=tuple(not_checked),
        checked={
            "backend": history.run.backend,
            "form": history.run.form,
            "steps": judged_steps,
            "graphs": len(history.graphs),
            **({"runs": runs} if runs else {}),
            **history.counts,
        },
        steps=tuple(sorted(steps, key=lambda step: step.index)),
        findings=tuple(findings),
        rules=CODES,
        coverage=judged_steps / len(steps) if steps else None,
    )
