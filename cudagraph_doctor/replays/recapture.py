"""Captures some steps again and again, interleaved, and dumps what each capture froze. Judged by `baked`.

Each capture starts from reset() and from the same state of the host's random generators, else a counter or a draw could
not be told from what a capture shows by chance.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from cudagraph_doctor.graph.model import CapturedGraph
from cudagraph_doctor.proof.arms import Arms
from cudagraph_doctor.proof.reading import read
from cudagraph_doctor.proof.subject import Planned
from cudagraph_doctor.proof.weights import weight_names
from cudagraph_doctor.replays.host_memory import host_memory
from cudagraph_doctor.replays.model import Dump
from cudagraph_doctor.walk import walk

MOVED_ON = 4
"""Captures with the host moved on."""
_LONGEST = 64
"""Texts above this length are no modes or names."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A capture to make."""

    at: Planned
    before: tuple[Planned, ...] = ()
    """Steps that lead to it from reset(), where steps move host values."""
    moved_on: int = 0
    """As `Dump.moved_on`."""


def interleaved(steps: Sequence[Planned], times: int, leading: Sequence[Planned] = ()) -> list[Asked]:
    """The captures to make: all steps in turn, `times` times over; then the first step with the host moved on.

    Each turn begins with another step: memory that is handed out alternately must not go along with the steps.

    Args:
        steps: positions in `leading` tell which of those steps come before.
        times: captures of each step with nothing changed.
        leading: the steps of a whole run in order; none where steps move no host values.
    """

    def ask(at: Planned, moved_on: int = 0) -> Asked:
        return Asked(at, tuple(leading[: at.index]), moved_on)

    turns = [[*steps[turn % len(steps) :], *steps[: turn % len(steps)]] for turn in range(times)]
    return [ask(at) for turn in turns for at in turn] + [ask(steps[0], more) for more in range(1, 1 + MOVED_ON)]


def chosen(plan: Sequence[Planned], keys: int, bad: Sequence[Planned] = ()) -> list[Planned]:
    """Steps to compare: of up to `keys` keys, those with bad steps first, some that cross what serving crosses.

    Of each key the bad steps come in, the first two, one in the middle, the last, and one of another batch size.
    """
    found: dict[int, Planned] = {}
    for key in list(dict.fromkeys(at.key for at in (*bad, *plan)))[:keys]:
        same = [at for at in plan if at.key == key]
        fewer = [at for at in same if at.rows != same[0].rows]
        wrong = [at for at in bad if at.key == key]
        found |= {at.index: at for at in (*same[:2], *wrong[:2], same[len(same) // 2], *fewer[:1], same[-1])}
    return sorted(found.values(), key=lambda at: at.index)


def captures(arms: Arms, asked: Sequence[Asked]) -> list[Dump]:
    """Make the captures and read them. The graphs that are captured for it are dropped again.

    Raises Inconclusive where nothing is captured.
    """
    subject, backend = arms.subject, arms.backend
    start = arms.memory.random_state()
    weights = weight_names(arms)
    dumps: list[Dump] = []
    for one in asked:
        subject.reset()
        for earlier in one.before:
            subject.eager(earlier)
        if subject.form == "engine":
            subject.eager(one.at)  # it sets its host values in the step
        else:  # an engine would go on to the next tokens: its lengths are no counters
            for _ in range(one.moved_on):
                subject.eager(one.at)
        arms.memory.set_random_state(start)
        _draw(one.moved_on)
        before = _host(arms, one.at)
        subject.recapture(one.at)
        after = _host(arms, one.at)
        moved = {path: value for path, value in after.items() if before.get(path, value) != value}
        if not subject.held(one.at, fresh=True):  # a runner's own affair, known when the step has replayed them
            subject.fresh(one.at)
        for position, graph in enumerate(read(arms, subject.held(one.at, fresh=True), weights)):
            if graph is not None:
                dumps.append(_dump(len(dumps), one, position, graph, before, moved))
    subject.drop_fresh()
    arms.memory.set_random_state(start)
    backend.synchronize()
    return _without_constants(dumps)


def _draw(times: int) -> None:
    for _ in range(times):
        random.random()
        torch.rand(1)
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.random()


def _host(arms: Arms, at: Planned) -> dict[str, Any]:
    """Numbers and short texts of the step's true values and of the target's objects, by path."""
    told: dict[str, Any] = {**walk(arms.subject.roots()).scalars, **arms.subject.host_truth(at)}
    return {
        path: value
        for path, value in told.items()
        if isinstance(value, (bool, int, float)) or (isinstance(value, str) and len(value) <= _LONGEST)
    }


def _dump(
    ordinal: int, asked: Asked, position: int, graph: CapturedGraph, before: Mapping[str, Any], moved: Mapping[str, Any]
) -> Dump:
    at = asked.at
    return Dump(
        ordinal,
        at.step,
        at.rows,
        str(at.key),
        graph.nodes,
        position,
        moved_on=asked.moved_on,
        host=dict(before),
        host_after=dict(moved),
        host_memory=host_memory(),
    )


def _without_constants(dumps: Sequence[Dump]) -> list[Dump]:
    """Without the host values that are the same in all of them."""
    first = dumps[0].host if dumps else {}
    constant = {
        path
        for path, value in first.items()
        if all(dump.host.get(path) == value and path not in dump.host_after for dump in dumps)
    }
    return [replace(dump, host={p: v for p, v in dump.host.items() if p not in constant}) for dump in dumps]
