"""Was enough looked at: `--min-coverage`, and `--compare` with an older run. Too little is inconclusive, no finding."""

from __future__ import annotations

from collections.abc import Iterator

from cudagraph_doctor.findings import Outcome, Report, Status

_DONE = (Status.PASSED, Status.FOUND)


def too_little(report: Report, least: float) -> Iterator[str]:
    """The checks that could judge less than this share (0 to 1) of what they had to, in words."""
    for outcome in report.outcomes:
        if outcome.status in _DONE and outcome.coverage is not None and outcome.coverage < least:
            yield f"{outcome.check}: {outcome.coverage:.1%} could be judged, demanded are {least:.1%}"


def less_than_before(report: Report, old: Report, threshold: float) -> Iterator[str]:
    """Where this run looked at less than the older one, in words.

    Args:
        report: this run.
        old: the older one; checks that were not asked for now are left out.
        threshold: by how much a share or a number may be smaller, 0 to 1.
    """
    before = {outcome.check: outcome for outcome in old.outcomes if outcome.status in _DONE}
    for outcome in report.outcomes:
        if outcome.status in _DONE and outcome.check in before:
            yield from _lower_share(outcome, before[outcome.check], threshold)
            if report.target.get("form"):  # steps of a trace are traffic, not a plan
                yield from _lower_counts(outcome, before[outcome.check], threshold)


def _lower_share(now: Outcome, old: Outcome, threshold: float) -> Iterator[str]:
    if now.coverage is not None and old.coverage is not None and round(old.coverage - now.coverage, 6) > threshold:
        yield f"{now.check}: {now.coverage:.1%} could be judged, it was {old.coverage:.1%}"


def _lower_counts(now: Outcome, old: Outcome, threshold: float) -> Iterator[str]:
    for what, count in _counts(now).items():
        was = _counts(old)[what]
        if count < round(was * (1 - threshold), 6):
            yield f"{now.check}: {count} {what}, it was {was}"


def _counts(outcome: Outcome) -> dict[str, int]:
    return {
        "steps were played": len(outcome.steps),
        "keys were looked at": len({step.key for step in outcome.steps}),
        "rules were evaluated": len(outcome.rules),
    }
