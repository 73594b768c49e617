"""One value through many captures: constant, another for each input, or moving by itself? Plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

from cudagraph_doctor.replays.candidates import Input, Kind

T = TypeVar("T")

_ENOUGH = 3
"""Captures with the host moved on that it takes to say that a value went along."""


@dataclass(frozen=True, slots=True)
class Captures:
    """What was captured, in order."""

    inputs: tuple[Input, ...]
    moved_on: tuple[bool, ...]
    """For each capture, whether the host's own state was moved on before it."""

    def settled(self, values: Sequence[T]) -> list[tuple[Input, T]]:
        """Input and value of the captures that started from the same host state."""
        told = zip(self.inputs, self.moved_on, values, strict=True)
        return [(at, value) for at, moved_on, value in told if not moved_on]

    def moved(self, values: Sequence[T]) -> list[tuple[Input, T]]:
        """Input and value of the others."""
        told = zip(self.inputs, self.moved_on, values, strict=True)
        return [(at, value) for at, moved_on, value in told if moved_on]

    def of_inputs(self, values: Sequence[T]) -> dict[Input, T]:
        """The value of each input, from its first capture."""
        first: dict[Input, T] = {}
        for at, value in self.settled(values):
            first.setdefault(at, value)
        return first

    def is_steady(self, values: Sequence[Any]) -> bool:
        """Whether captures of one input have one value."""
        first = self.of_inputs(values)
        return all(first[at] == value for at, value in self.settled(values))

    def is_same(self, values: Sequence[Any]) -> bool:
        """Whether they have one value also where the host was moved on."""
        first = self.of_inputs(values)
        return all(first.get(at, value) == value for at, value in zip(self.inputs, values, strict=True))

    def kind(self, values: Sequence[Any]) -> Kind | None:
        """What the values are; None if they are constant, or vary without order.

        Args:
            values: hashable, one for each capture.
        """
        settled = [value for _, value in self.settled(values)]
        first = self.of_inputs(values)
        if len(set(settled)) == len(settled) > len(first):
            return Kind.COUNTER if _goes_one_way(settled) else Kind.DRAW
        if not self.is_steady(values):
            return None
        moved = self.moved(values)
        if len(moved) >= _ENOUGH and len({first[at] for at, _ in moved}) == 1:
            row = [first[moved[0][0]], *(value for _, value in moved)]
            if len(set(row)) == len(row):
                return Kind.COUNTER if _goes_evenly(row) else Kind.DRAW
        return Kind.VALUE if len(set(settled)) > 1 else None


def _goes_one_way(values: Sequence[Any]) -> bool:
    steps = _steps(values)
    return bool(steps) and (all(step > 0 for step in steps) or all(step < 0 for step in steps))


def _goes_evenly(values: Sequence[Any]) -> bool:
    steps = _steps(values)
    return bool(steps) and all(abs(step - steps[0]) <= 1e-6 * abs(steps[0]) for step in steps)


def _steps(values: Sequence[Any]) -> list[float]:
    if not all(isinstance(value, (int, float)) for value in values):
        return []
    return [b - a for a, b in pairwise(values)]
