"""What the user demanded, against what was measured. A demand that the trace cannot answer is inconclusive."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from cudagraph_doctor.misses.judged import Demands, Run
from cudagraph_doctor.misses.summary import is_open
from cudagraph_doctor.misses.verdict import Verdict

COMPARED = ("hit_rate", "eager_share", "padding_share")
"""Numbers that `--compare` looks at."""


@dataclass(frozen=True, slots=True)
class Gate:
    """One demand."""

    option: str
    met: bool | None
    """None: the trace cannot tell."""
    message: str
    key: str = ""
    """Tells apart several of one option."""
    fix: str = "Label the steps, name the buckets with --buckets, or record in node mode; see what was not checked."
    """What helps where the trace cannot tell."""


def check(run: Run, demands: Demands, summary: dict[str, Any]) -> list[Gate]:
    """All demands that were made."""
    return list(_gates(run, demands, summary))


def numbers(summary: dict[str, Any]) -> dict[str, float]:
    """What a later run is compared with."""
    steps = summary["decode_steps"]
    found = {
        "hit_rate": summary["hit_rate"]["by_steps"],
        "eager_share": round(summary["eager_steps"] / steps, 4) if steps else None,
        "padding_share": summary["padding"]["share"],
    }
    return {name: value for name, value in found.items() if value is not None}


def _gates(run: Run, demands: Demands, summary: dict[str, Any]) -> Iterator[Gate]:
    open_ = sum(is_open(step) for step in run.decode)
    unsure = f" ({open_} steps are not known)" if open_ else ""
    if demands.min_hit_rate is not None:
        low, high = summary["hit_rate"]["by_steps"], summary["hit_rate"]["at_most"]
        met = (
            None
            if low is None
            else True
            if low >= demands.min_hit_rate
            else None
            if high >= demands.min_hit_rate
            else False
        )
        said = "no decode step" if low is None else f"{low:.1%}{unsure}"
        yield Gate("--min-hit-rate", met, f"the hit rate is {said}, demanded are {demands.min_hit_rate:.1%}")
    if demands.max_eager_steps is not None:
        eager = sum(step.verdict is Verdict.EAGER and not is_open(step) for step in run.decode)
        most = demands.max_eager_steps
        met = False if eager > most else True if eager + open_ <= most else None
        yield Gate("--max-eager-steps", met, f"{eager} decode steps ran eager{unsure}, allowed are {most}")
    if demands.max_padding is not None:
        padding = summary["padding"]
        met = None if padding["share"] is None or padding["steps_unknown"] else padding["share"] <= demands.max_padding
        said = f"{padding['share']:.1%} of the rows" if padding["share"] is not None else "not known"
        unsure = (
            f" ({padding['steps_unknown']} replayed steps have no known bucket)" if padding["steps_unknown"] else ""
        )
        yield Gate("--max-padding", met, f"padding is {said}{unsure}, allowed are {demands.max_padding:.1%}")
    if demands.expect:
        yield _expectation(run, demands.expect)
    if demands.expect_launches is not None:
        yield _launches(run, demands.expect_launches)
    if demands.compare_with is not None:
        yield from _compared(demands.compare_with, numbers(summary), demands.compare_threshold)


def _expectation(run: Run, expect: str) -> Gate:
    allowed = {Verdict.FULL} if expect == "full" else {Verdict.FULL, Verdict.PIECEWISE}
    known = [step for step in run.decode if not is_open(step)]
    # a mixed step is let off: prefill tokens make it piecewise, whatever the engine does with pure decode steps
    judged = [step for step in known if step.verdict in allowed or not step.hit]
    free = len(known) - len(judged)
    others = [step for step in judged if step.verdict not in allowed]
    open_ = len(run.decode) - len(known)
    met = False if others else None if open_ or not judged else True
    if others:
        said = f"{len(others)} of {len(judged)} decode steps were not"
    else:
        said = f"all {len(judged)} known steps were" if judged else "there is no pure decode step to judge"
    said += f" ({open_} are not known)" if open_ else ""
    said += f" ({free} with prefill tokens mixed in were piecewise, as they may be)" if free else ""
    gate = Gate("--expect", met, f"{expect} replays are expected; {said}")
    only_free = free and not judged and not open_
    return replace(gate, fix="Record pure decode steps, or ask for --expect piecewise.") if only_free else gate


def _launches(run: Run, expected: int) -> Gate:
    counted = [step for step in run.decode if step.record.graph_launches]
    others = [step for step in counted if step.record.graph_launches != expected]
    met = None if not counted else not others
    return Gate(
        "--expect-launches",
        met,
        f"{expected} graph launches a replayed step are expected; {len(others)} of {len(counted)} have another number",
    )


def _compared(old: dict[str, float], new: dict[str, float], threshold: float) -> Iterator[Gate]:
    gained = round(new.get("hit_rate", 0.0) - old.get("hit_rate", 1.0), 6)
    for name in COMPARED:
        if name not in old:
            continue
        words = name.replace("_", " ")
        if name not in new:
            yield Gate("--compare", None, f"the {words} is not known now; it was {old[name]:.1%}", name)
            continue
        if name == "padding_share" and gained > threshold and new[name] > old[name]:
            # A step that ran eager had no padding. That its replay has some is the price of a hit, not a regression.
            said = f"the padding share is {new[name]:.1%}, it was {old[name]:.1%}"
            why = f"not held against a run with more replays (the hit rate rose by {gained:.1%})"
            yield Gate("--compare", True, f"{said}; {why}", name)
            continue
        worse = old[name] - new[name] if name == "hit_rate" else new[name] - old[name]
        # Rounded, so that a difference of exactly the threshold is not decided by the last bit.
        yield Gate(
            "--compare",
            round(worse, 6) <= threshold,
            f"the {words} is {new[name]:.1%}, it was {old[name]:.1%} (allowed: {threshold:.1%} worse)",
            name,
        )
