"""Which host value does a baked number go along with? Plain Python."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from cudagraph_doctor.replays.model import Dump

_FEW = 3
"""So many different values have to lie in a line: any two do."""


def followed(values: Sequence[Any], dumps: Sequence[Dump]) -> str:
    """The path of the host value that is equal to `values` in all the dumps, or a multiple of it plus a constant.

    The value is taken right before or right after the capture, whichever fits. "" if none does; the shortest path if
    several do.

    Args:
        values: what was baked in, one for each dump.
    """
    numbers = [value for value in values if isinstance(value, (int, float))]
    if len(numbers) < len(values) or len(set(numbers)) < 2:
        return ""
    series = list(_series(dumps))
    for fits in (_equal, _multiple, _in_line):
        paths = [path for path, held in series if fits(numbers, held)]
        if paths:
            return min(paths, key=lambda path: (len(path), path))
    return ""


def _series(dumps: Sequence[Dump]) -> Iterator[tuple[str, list[float]]]:
    """Each host value through all the dumps, as it was before the captures, and after them where they moved it."""
    for path in sorted(set.intersection(*({*dump.host} for dump in dumps)) if dumps else ()):
        before = [dump.host[path] for dump in dumps]
        after = [dump.host_after.get(path, dump.host[path]) for dump in dumps]
        for held in (before, after):
            if _are_numbers(held):
                yield path, held


def _are_numbers(values: Iterable[Any]) -> bool:
    return all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)


def _equal(numbers: Sequence[float], held: Sequence[float]) -> bool:
    return all(_close(a, b) for a, b in zip(numbers, held, strict=True))


def _multiple(numbers: Sequence[float], held: Sequence[float]) -> bool:
    """Whether number = a * held."""
    pairs = list(zip(held, numbers, strict=True))
    return all(x and y for x, y in pairs) and all(_close(y / x, pairs[0][1] / pairs[0][0]) for x, y in pairs)


def _in_line(numbers: Sequence[float], held: Sequence[float]) -> bool:
    """Whether number = a * held + b, over enough different values that it is no chance."""
    pairs = sorted(set(zip(held, numbers, strict=True)))
    if len(pairs) < _FEW or len({x for x, _ in pairs}) < len(pairs):
        return False
    (x0, y0), (x1, y1) = pairs[0], pairs[-1]
    slope = (y1 - y0) / (x1 - x0)
    return slope != 0 and all(_close(y, y0 + slope * (x - x0)) for x, y in pairs)


def _close(a: float, b: float) -> bool:
    """As near as a float of four bytes holds a number."""
    return abs(a - b) <= 1e-6 * max(abs(a), abs(b), 1e-30)
