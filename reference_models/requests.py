"""Who is served in which step: requests of different lengths that join, grow and leave, and the blocks they own.

Plain Python, and a pure function of (step, seed): steps may be asked for in any order, any number of times. There are
16 seats. A seat that a request leaves is taken by the next request in the same step, and freed blocks are handed out
again at once, so what a request reads now another one has written before. Next on the path: `inputs.py`, which turns
requests into tensors.
"""

from __future__ import annotations

import functools
import random
from dataclasses import dataclass, replace

BLOCK_SIZE = 16
"""Tokens in a block of the cache."""
MAX_ROWS = 16
"""Requests served at a time: the largest bucket."""
LONGEST_REQUEST = 128
"""Tokens that the longest request may come to: the width of the block table is for these."""

_PATIENT_PROMPT = 30
_PATIENT_STEPS = 48


@dataclass(frozen=True, slots=True)
class Request:
    """One request in one step."""

    number: int
    """0, 1, ... in order of arrival."""
    length: int
    """Tokens in the cache, the one decoded in this step included: its seq_len."""
    leaves_at: int
    """The first step without it."""
    blocks: tuple[int, ...] = ()
    """Blocks of the cache that it owns, in the order of its tokens."""

    @property
    def position(self) -> int:
        """Of the token decoded in this step."""
        return self.length - 1

    @property
    def slot(self) -> int:
        """Where the key and value of that token go."""
        return self.blocks[self.position // BLOCK_SIZE] * BLOCK_SIZE + self.position % BLOCK_SIZE


def running(step: int, rows: int, seed: int, num_blocks: int) -> tuple[Request, ...]:
    """The requests of step `step`, one a row: the first `rows` seats, highest seat first.

    So when a batch shrinks, requests leave at the top and the others move up, as in an engine's queue; seat 0 is always
    served and always last. Its first request is there for 48 steps, is the longest of them all, owns slot 0 and crosses
    a block boundary in step 2. The seat beside it changes hands in step 3.

    Raises ValueError if there are not 1 to 16 rows, or a negative step.
    """
    if not 1 <= rows <= MAX_ROWS or step < 0:
        raise ValueError(f"step {step} with {rows} rows: steps start at 0, and 1 to {MAX_ROWS} rows are served")
    played = _played(seed, num_blocks)
    while len(played) <= step:
        played.append(_seated(len(played), played[-1], seed, num_blocks))
    return tuple(reversed(played[step][:rows]))


@functools.cache
def _played(seed: int, num_blocks: int) -> list[tuple[Request, ...]]:
    """Seats of the steps played so far; grows."""
    return [_seated(0, (), seed, num_blocks)]


def _seated(step: int, before: tuple[Request, ...], seed: int, num_blocks: int) -> tuple[Request, ...]:
    """The seats in `step`: those of the step before, one token on, who leaves replaced, all with blocks enough."""
    newcomer = max((request.number for request in before), default=-1) + 1
    seats = []
    for seat in range(MAX_ROWS):
        if before and before[seat].leaves_at > step:
            seats.append(replace(before[seat], length=before[seat].length + 1))
        else:
            seats.append(_arrival(newcomer, step, seed))
            newcomer += 1
    owned = {block for request in seats for block in request.blocks}
    free = iter([block for block in range(num_blocks) if block not in owned])  # the lowest first
    return tuple(
        replace(request, blocks=request.blocks + tuple(next(free) for _ in range(_blocks_missing(request))))
        for request in seats
    )


def _arrival(number: int, step: int, seed: int) -> Request:
    if number == 0:
        return Request(number, _PATIENT_PROMPT + 1, leaves_at=step + _PATIENT_STEPS)
    draw = random.Random(f"{seed} {number}")
    prompt, steps = draw.randint(5, 20), draw.randint(3, 9)
    return Request(number, prompt + 1, leaves_at=step + (3 if number == 1 else steps))


def _blocks_missing(request: Request) -> int:
    return -(-request.length // BLOCK_SIZE) - len(request.blocks)
