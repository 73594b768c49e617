"""Bytes as the numbers that they most likely are. Plain Python, no torch."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

Number = int | float

_CODES = {
    "bool": "?",
    "uint8": "B",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "float16": "e",
    "float32": "f",
    "float64": "d",
}
"""Name of a dtype -> how `struct` unpacks it."""

_PLAUSIBLE = {
    1: ("uint8",),
    2: ("bfloat16", "float16", "int16"),
    4: ("int32", "float32"),
    8: ("int64", "float64"),
}
"""Number of bytes -> what they may be, most likely first."""
_LARGEST = 1 << 24
"""Integers above are no sizes, steps or counts that somebody passes by value: rather the bits of a float."""
_LARGEST_WIDE = 1 << 32


def numbers(data: bytes, dtype: str) -> tuple[Number, ...] | None:
    """A tensor's elements, in order; None for a dtype that is not unpacked here (complex, floats of 8 bits)."""
    if dtype == "bfloat16":
        halves = struct.unpack(f"<{len(data) // 2}H", data[: len(data) // 2 * 2])
        return struct.unpack(f"<{len(halves)}f", struct.pack(f"<{len(halves)}I", *(half << 16 for half in halves)))
    if dtype not in _CODES:
        return None
    size = struct.calcsize(_CODES[dtype])
    return struct.unpack(f"<{len(data) // size}{_CODES[dtype]}", data[: len(data) // size * size])


def guess(words: Sequence[bytes]) -> tuple[str, list[Number]] | None:
    """(dtype, values) of a by-value parameter as it was at different moments; None if no reading fits all of them.

    Args:
        words: equally long.
    """
    for dtype in _PLAUSIBLE.get(len(words[0]), ()):
        values = [(numbers(word, dtype) or (math.nan,))[0] for word in words]
        if all(_plausible(value, dtype) for value in values):
            return dtype, [shown(value, dtype) for value in values]
    return None


def _plausible(value: Number, dtype: str) -> bool:
    if isinstance(value, int):
        return abs(value) < (_LARGEST_WIDE if dtype == "int64" else _LARGEST)
    return value == 0 or 1e-6 < abs(value) < 1e9


def shown(value: Number, dtype: str) -> Number:
    """With as many digits as the dtype has."""
    digits = {"bfloat16": 3, "float16": 4, "float32": 7}.get(dtype)
    return float(f"{value:.{digits}g}") if digits and isinstance(value, float) and math.isfinite(value) else value
