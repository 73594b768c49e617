"""Are two findings one fault? Asked of what was put right and of what healed, never of names alone."""

from __future__ import annotations

from typing import Any

from cudagraph_doctor.findings import Finding, Proof

_PLACES = "places"
_SEEN_AT = "seen_at_steps"


def same_fault(a: Finding, b: Finding) -> str:
    """What shows that both accuse one thing, in words; "" if nothing does."""
    shared = [place for place in places(a) if place in places(b)]
    if shared:
        return _in_words(shared[0])
    readers = [text for text in _launched(a) if text in _launched(b)]
    if readers:
        return f"both are mended in what one launch reads: {readers[0]}"
    if _line(a) and _line(a) == _line(b) and not (places(a) and places(b)):
        return "both are about what this line launches"
    return ""


def follows(finding: Finding, healed: Finding, left: frozenset[int]) -> str:
    """What shows that `finding`, which accuses nobody, is harm that `healed` did, in words; "" if nothing does.

    Args:
        finding: says that some steps differ.
        healed: says what was mended, and at which steps that helped.
        left: the steps that differ in the check of `healed` as well, and that nothing mends.
    """
    if is_named(finding) or healed.proof is not Proof.CONFIRMED:
        return ""
    steps = steps_of(finding)
    if steps & steps_of(healed) and not steps & left:
        return f"the steps that differ are right once {_what(healed)} is mended"
    return ""


def is_named(finding: Finding) -> bool:
    """Whether the finding says who did it: something that was mended, or shown to be launched otherwise."""
    return bool(places(finding)) or (finding.culprit is not None and finding.culprit.kind != "state")


def places(finding: Finding) -> list[dict[str, Any]]:
    """What was put right: see `proof.repaired`."""
    found = finding.evidence.get(_PLACES, [])
    kept = finding.evidence.get("kept")
    if kept:  # an output that was given memory of its own
        return [{"graph": finding.key, "step": finding.step, "output": kept}]
    return found if isinstance(found, list) else []


def steps_of(finding: Finding) -> frozenset[int]:
    """The steps at which it was seen."""
    return frozenset(finding.evidence.get(_SEEN_AT, () if finding.step is None else (finding.step,)))


def _launched(finding: Finding) -> list[str]:
    """Who reads what was put right, with the lines: graphs of other keys launch the same from the same line."""
    return [text for text in finding.evidence.get("read_by", ()) if "launched at" in text]


def _line(finding: Finding) -> str:
    """The line that launches what is accused; "" where that is not known, or it is one that stages or captures."""
    at = finding.location
    return f"{at.file}:{at.line}" if at is not None and not at.role else ""


def _in_words(place: dict[str, Any]) -> str:
    if "bytes" in place:
        return f"the same bytes heal step {place['step']}"
    if "output" in place:
        return f"the same output is kept over replays of graph {place['graph']}"
    parameter = f", parameter {place['parameter']}" if "parameter" in place else ""
    return f"both are mended at what node {place['node']}{parameter} of graph {place['graph']} reads"


def _what(finding: Finding) -> str:
    return f"`{finding.culprit.name}`" if finding.culprit else "it"
