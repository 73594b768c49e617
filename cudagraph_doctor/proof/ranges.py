"""What several things have in common, in words: "rows 0 to 2, 5", "graph 4 and 2 more graphs". Plain Python."""

from __future__ import annotations

from collections.abc import Sequence

_SHOWN = 6
"""Stretches told before it says "..."."""


def numbered(what: str, numbers: Sequence[int]) -> str:
    """Of rows, say: "row 7", "rows 0 to 2, 5".

    Args:
        what: the noun.
        numbers: ascending.
    """
    return f"{what}{'s' if len(numbers) > 1 else ''} {_ranges(numbers)}"


def _ranges(numbers: Sequence[int]) -> str:
    """[0, 1, 2, 5] as "0 to 2, 5"."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    told = ", ".join(str(a) if a == b else f"{a} to {b}" for a, b in parts[:_SHOWN])
    return told + (", ..." if len(parts) > _SHOWN else "")


def graphs_too(also_in: Sequence[str]) -> str:
    """One more sentence, with the first of the other graphs and the number of the rest; "" if there are none."""
    more = len(also_in) - 1
    rest = f" and {more} more graph{'s' if more > 1 else ''}" if more > 0 else ""
    return f" The same fault is in {also_in[0]}{rest}." if also_in else ""
