"""Reads what the options of `audit` say: lists of ranks, bytes, a cost model. Each raises ValueError, in words."""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path

from cudagraph_doctor.audit.costs import Modelled
from cudagraph_doctor.options import sizes

_BYTES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_MOST = 1_000_000
EMITS = ("vllm", "sglang", "yaml")
"""What `--emit` takes; `audit.emit` has the functions."""


def rank_lists(text: str | None) -> tuple[tuple[int, ...], ...]:
    """`1,2,4`, or one list a rank: `1,2,4/1,2,8`."""
    return () if text is None else tuple(sizes(part) for part in text.split("/"))


def in_bytes(text: str | None) -> int | None:
    """`512MiB`, `1.5G`, `4096`."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmg]?)(?:i?b)?", text.strip().lower())
    if not match:
        raise ValueError(f'"{text}" is no amount of memory; write 512MiB or 2GiB.')
    return int(float(match[1]) * _BYTES[match[2]])


def rate(value: float | None) -> float | None:
    """Requests a second."""
    if value is not None and not 0 < value <= _MOST:
        raise ValueError(f"{value:g} is no number of requests a second; write one above 0, up to {_MOST}.")
    return value


def at_least_one(value: float) -> float:
    """A number of steps or seconds."""
    if not 1 <= value <= _MOST:
        raise ValueError(f"{value:g} is no number from 1 to {_MOST}.")
    return value


def cost_model(text: str | None) -> Modelled:
    """`base=1,row=0.01,eager=4`, in milliseconds; what is left out keeps its default."""
    default = Modelled()
    given = {"base": default.base_ms, "row": default.row_ms, "eager": default.launch_ms}
    for part in text.split(",") if text else ():
        name, equals, number = part.strip().partition("=")
        try:
            value = float(number)
        except ValueError:
            value = -1.0
        if name not in given or not equals or not 0 <= value < math.inf:
            raise ValueError(f'"{part}" is no part of a cost model; write base=1,row=0.01,eager=4 (ms).')
        given[name] = value
    return Modelled(given["base"], given["row"], given["eager"])


@dataclasses.dataclass(frozen=True, slots=True)
class Emit:
    """A list to be written as configuration."""

    form: str
    file: Path | None
    """None: stdout, in place of the terminal's report."""


def emit(text: str | None) -> Emit | None:
    """`vllm`, `yaml=FILE`."""
    if text is None:
        return None
    form, equals, file = text.partition("=")
    if form not in EMITS or (equals and not file):
        raise ValueError(f'"{text}" is nothing that can be written; known: {", ".join(EMITS)}, or with =FILE.')
    return Emit(form, Path(file) if equals else None)
