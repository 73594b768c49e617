"""The evidence of all checks on one fault, a line each: the harm, the culprit, who reads it, who wrote it, the cure."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

from cudagraph_doctor.findings import Finding, first_step

_SLOTS = 6
"""Slots of state that are told."""
_SLOT = re.compile(r"(\S+)\[.*\] slot (\d+): (\w+)")
_PLACE = re.compile(r"(/\S+):(\d+)")


def evidence(members: Sequence[tuple[str, Finding]]) -> Iterator[str]:
    """The lines, each fact once.

    Args:
        members: the findings of the fault with the checks that found them, the leading one first.
    """
    known = [finding.evidence for _, finding in members]
    leading = members[0][1]
    yield from _harm([finding for _, finding in members])
    culprit = leading.culprit
    if culprit is not None:
        detail = f" ({culprit.detail})" if culprit.detail else ""
        yield f"{culprit.kind} `{culprit.name}`{detail}{_frozen(known)}"
    yield from _readers(_first(known, "read_by") or ())
    written = _first(known, "last_written")
    if written:
        yield f"last written at {_short(str(written))}"
    healed = _first(known, "healed_by")
    if healed:
        text = ", ".join(map(str, healed)) if isinstance(healed, list) else str(healed)
        yield f"healed by {re.sub('^healed by ', '', text, flags=re.I)}"
    elif shown := _first(known, "shown_by"):
        yield str(shown)


def _harm(members: Sequence[Finding]) -> Iterator[str]:
    step = first_step(members)
    known = [finding.evidence for finding in members]
    early = [finding.evidence for finding in members if finding.step == step]
    difference = _first(early, "replayed_against_eager") or _first(early, "effect")
    module = _first(known, "first_diverging_module")
    if difference:
        where = f", first in {module}" if module else ""
        since = f" from step {step} on" if step is not None else ""
        yield f"the replay differs from eager{since}{where}: {difference}"
        yield f"eager against itself: {_first(known, 'eager_against_eager') or 'no difference'}"
    state = _first(known, "state")
    if state:
        yield f"wrong in memory: {_slots(list(map(str, state)))}"
    hint = _first(early, "first_bad_step_hint")
    if hint:
        yield str(hint)
    refused = _first(known, "first_error")
    if refused:
        yield f"the capture fails with: {refused}"
    plain = _first(known, "plain_torch_shows")
    if plain:
        yield f"what torch alone shows: {plain}"


def _readers(told: Sequence[str]) -> Iterator[str]:
    """One line for all layers that launch the same at one line."""
    modules: dict[str, list[str]] = {}
    for text in told:
        launch, _, module = _short(text).partition(" in ")
        modules.setdefault(launch, []).append(module)
    for launch, where in modules.items():
        more = f" and {len(where) - 1} more" if len(where) > 1 else ""
        yield f"read by {launch}" + (f" in {where[0]}{more}" if where[0] else "")


def _slots(state: Sequence[str]) -> str:
    """Slots of the first tensor, `slots 17, 18 of layers.0.attn.key_cache`; as it is, where it is told otherwise."""
    found = [_SLOT.fullmatch(text) for text in state]
    first = found[0]
    if first is None:
        return state[0]
    slots = list(dict.fromkeys(one[2] for one in found if one and one[1] == first[1]))
    more = ", ..." if len(slots) > _SLOTS else ""
    return f"slot{'s' if len(slots) > 1 else ''} {', '.join(slots[:_SLOTS])}{more} of {first[1]} ({first[3]})"


def _frozen(known: Sequence[dict[str, Any]]) -> str:
    """How often it changed, where replays were watched."""
    told = next((one for one in known if "not_as_expected_at" in one and "replays" in one), None)
    if told is None:
        return ""
    return f": not as it should be at {told['not_as_expected_at']} of {told['replays']} replays looked at"


def _first(known: Sequence[dict[str, Any]], name: str) -> Any:
    return next((one[name] for one in known if one.get(name)), None)


def _short(text: str) -> str:
    """Paths by their file's name alone: the lines that matter are shown with their paths elsewhere."""
    return _PLACE.sub(lambda place: f"{os.path.basename(place[1])}:{place[2]}", text)
