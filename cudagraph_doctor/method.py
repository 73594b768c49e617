"""The method of a checkup: which checks in which order, what an earlier one makes pointless, who may go on with what.

All of it is about checks that run one after the other on one target in one process (`worker.run_checks`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from cudagraph_doctor import contract
from cudagraph_doctor.findings import Outcome, Status
from cudagraph_doctor.settings import Settings

CHECKUP = "checkup"
"""The command-line word; no check of its own."""
ON_TARGET = ("capture", "diff", "inputs")
"""The checks of a checkup that run on a target, in order."""
OF_TRACES = "buckets"
REFUSED = "refused operations"
"""In `Outcome.checked` of `capture`: how many operations made captures fail."""
_NOT_TO_BE_REPLAYED = {
    "CGD215": "a graph of this target holds no work, so what its replays do is not worth comparing",
    # torch gives such memory back to the system when a graph is captured next
    "CGD216": "a graph of this target copies from host memory that is gone, so a replay may crash the process",
}
"""What `capture` found of a graph -> why no check replays it."""
_CAPTURE = "capture"


def pointless(check: str, done: Sequence[Outcome]) -> Outcome | None:
    """The outcome of a check that replays graphs where `capture` has shown that it had better not; else None."""
    seen = next((outcome for outcome in done if outcome.check == _CAPTURE), None)
    if check == _CAPTURE or seen is None:
        return None
    refused = seen.checked.get(REFUSED, 0)
    if refused:
        some = "an operation" if refused == 1 else f"{refused} operations"
        return _skipped(check, f"captures of this target fail ({some} refused), so there is no graph to replay")
    found = {finding.code for finding in seen.findings}
    why = next((why for code, why in _NOT_TO_BE_REPLAYED.items() if code in found), None)
    return None if why is None else _skipped(check, why)


def _skipped(check: str, why: str) -> Outcome:
    return Outcome(
        check,
        Status.SKIPPED,
        reason=f"{why}.",
        fix="Mend what `capture` found, and run this again.",
    )


def ready(target: Any, done: Sequence[Outcome], again: Callable[[], Any]) -> Any:
    """The target, with graphs as it makes them when it starts.

    `capture` leaves an engine with graphs that were only recorded to be looked at, other checks with ones captured in
    the midst of their steps: it captures anew, or is made anew where it cannot.

    Args:
        target: what the checks before ran on.
        done: their outcomes.
        again: makes the target anew.
    """
    if not done or contract.classify(target) != "engine":
        return target
    if getattr(target, "recapture", None) is None:
        return again()
    target.graphs(False)
    target.reset()
    target.graphs(True)
    target.recapture()
    return target


def quickly(settings: Settings, target: Any) -> tuple[Settings, list[str]]:
    """With `--quick`: fewer buckets, or batch sizes of an engine, and what is left out by that, in sentences."""
    if not settings.quick or settings.buckets or settings.batch_sizes or settings.exhaustive:
        return settings, []
    engine = contract.classify(target) == "engine"
    member = "batch_sizes" if engine else "buckets"
    known = contract.sizes(getattr(target, member), member) if contract.has(target, member) else ()
    if len(known) < 3:
        return settings, []
    low, before, high = min(known), sorted(known)[-2], max(known)
    chosen = (high, before, low, high) if engine else (low, high)
    rest = sorted(set(known) - set(chosen))
    left = [f"{member.replace('_', ' ')} {', '.join(map(str, rest))}: left out by --quick"] if rest else []
    if engine:
        return dataclasses.replace(settings, batch_sizes=chosen), left
    return dataclasses.replace(settings, buckets=chosen), left
