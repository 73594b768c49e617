"""Does a key give the same after any other key? Random orders of full and small batches, bit for bit, with control.

Each visit is the first step of a run, from the target's own `reset()`; nothing else is put back in between, so what
one key leaves in memory that others use is still there. Memory that `reset()` leaves alone may be there too, and holds
what the last key wrote, by right: where the outputs agree and the state alone differs, it is run again from the state
that its first visit began with, and only what differs then is its own doing.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from cudagraph_doctor.measuring.model import Dependence, Switching
from cudagraph_doctor.measuring.visits import number
from cudagraph_doctor.proof.arms import Arms, Result
from cudagraph_doctor.proof.compare import compare
from cudagraph_doctor.proof.state import Snapshot
from cudagraph_doctor.proof.state_changes import same_state
from cudagraph_doctor.proof.subject import Planned

ORDERS = 3
_AGAIN = 2
"""Further runs of a pair before it is spoken of."""
_STATE = 1 << 28
"""Bytes of state, before and after, that are kept for all visits together; above it outputs alone are compared."""


def switch(arms: Arms, visits: Sequence[Planned], seed: int) -> Switching:
    """Visit the keys in random orders; every result against the key's first one."""
    state_bytes = sum(extent.bytes for extent in arms.found.state)
    with_state = 2 * state_bytes * len(visits) <= _STATE
    first: dict[Planned, Result] = {}
    starts: dict[Planned, Snapshot] = {}
    unstable = []
    for at in visits:
        arms.subject.reset()
        arms.subject.eager(at)  # how wide its outputs are
        arms.subject.reset()
        arms.memory.refresh()
        starts[at] = arms.memory.save(arms.found.state if with_state else ())
        result = _visit(arms, at, with_state)
        if not arms.subject.has_replayed(at):
            continue
        if _differs(_visit(arms, at, with_state), result):
            unstable.append(number(at.key) or 0)
        else:
            first[at] = result
    draw, found, compared = random.Random(seed), {}, 0
    last: Planned | None = None
    for _ in range(ORDERS):
        for at in draw.sample(sorted(first, key=lambda at: at.index), len(first)):
            result = _visit(arms, at, with_state)
            compared += 1
            said = _differs(result, first[at]) if last is not None and number(at.key) not in found else ""
            if said and last is not None:
                start = None if compare(result.outputs, first[at].outputs) else starts[at]
                if _each_time(arms, at, last, first[at], with_state, start):
                    found[number(at.key)] = _dependence(at, last, said)
            last = at
    return Switching(ORDERS, compared, tuple(found.values()), tuple(sorted(set(unstable))), with_state)


def _visit(arms: Arms, at: Planned, with_state: bool, start: Snapshot | None = None) -> Result:
    """Once, from reset; from the state `start`, if that is given."""

    @contextmanager
    def by_graph(_at: Planned) -> Iterator[bool]:
        if start is not None:
            arms.memory.refresh()
            arms.memory.restore(start, random=False)
        yield True

    [result] = arms.play([at], by_graph)
    if not with_state:
        result.state = {}
    return result


def _each_time(arms: Arms, at: Planned, last: Planned, first: Result, with_state: bool, start: Snapshot | None) -> bool:
    """Alternate: right after `last` it differs each time, and run again it is that or the first result, nothing else.

    The control is the two equal runs at the beginning: what was lost then need not come back by itself.
    """
    for _ in range(_AGAIN):
        _visit(arms, last, with_state)
        result = _visit(arms, at, with_state, start)
        again = _visit(arms, at, with_state, start)
        if not _differs(result, first) or (_differs(again, result) and _differs(again, first)):
            return False
    return True


def _differs(result: Result, first: Result) -> str:
    """What differs, in words; "" if nothing does."""
    outputs = compare(result.outputs, first.outputs)
    if outputs:
        return "; ".join(str(difference) for difference in outputs[:3])
    return "" if same_state(result.state, first.state) else "the state that it leaves"


def _dependence(at: Planned, last: Planned, differs: str) -> Dependence:
    return Dependence(number(at.key) or 0, at.rows, number(last.key) or 0, last.rows, differs, 1 + _AGAIN)
