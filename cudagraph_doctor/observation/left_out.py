"""What a step leaves out because it is told that its stream captures, and whether that does harm.

The body runs eagerly each time: told that it is captured, and told the truth, in turn and twice each. Kernels are the
same in both, so what differs is the step's own branch. What is told truly is what eager steps do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import replace

from cudagraph_doctor.findings import Location
from cudagraph_doctor.observation.effects import Done, Effects
from cudagraph_doctor.observation.model import LeftOut, Operation

Run = Callable[[bool, Collection[Done]], Effects]
"""Runs the body: whether it is told that it is captured, and what is looked at closely."""


def left_out(run: Run) -> LeftOut:
    """Compare what the body does. Raises what it raises.

    Operators that are left out do harm if nothing is done instead, and they change memory that outlives the step, or
    something that both do gives another result without them.
    """
    told, truth = run(True, ()), run(False, ())
    missing = _missing(truth, told)
    if not missing:
        return LeftOut()
    told_again, truth_again = run(True, ()), run(False, missing)
    if _names(truth) != _names(truth_again) or _names(told) != _names(told_again):
        return LeftOut(not_compared="two eager runs of the same step do not run the same operators")
    instead = {capture for capture, _ in _names(told) - _names(truth)}
    differs = {
        done.capture
        for done in told.operations.keys() & truth.operations.keys()
        if told.result(done) == told_again.result(done) != truth.result(done) == truth_again.result(done)
    }
    harmful: list[Operation] = []
    harmless: list[Operation] = []
    for done, operation in truth_again.operations.items():
        if done not in missing:
            continue
        read = done in truth_again.read and done.capture in differs
        harms = done.capture not in instead and (done in truth_again.changed or read)
        (harmful if harms else harmless).append(operation)
    harmful_lines = {operation.location for operation in harmful}
    return LeftOut(
        harmful=_once_a_line(harmful),
        harmless=_once_a_line([operation for operation in harmless if operation.location not in harmful_lines]),
    )


def _names(effects: Effects) -> Counter[tuple[int, str]]:
    """How often each operator runs in each capture."""
    return Counter((done.capture, done.site.name) for done in effects.operations)


def _missing(truth: Effects, told: Effects) -> set[Done]:
    """What only one of both does, and not the other at another line either."""
    fewer = _names(truth) - _names(told)
    return {
        done for done in truth.operations.keys() - told.operations.keys() if (done.capture, done.site.name) in fewer
    }


def _once_a_line(operations: list[Operation]) -> tuple[Operation, ...]:
    """One for each line, with the names of all."""
    lines: dict[Location | None, list[Operation]] = {}
    for operation in operations:
        lines.setdefault(operation.location, []).append(operation)
    return tuple(
        replace(some[0], name=", ".join(dict.fromkeys(o.name for o in some)), times=len(some))
        for some in lines.values()
    )
