"""The keys that an engine captures, and which of them serves a batch. Plain data: every part of the audit reads it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Unit(StrEnum):
    """What the sizes of keys count."""

    REQUESTS = "requests"
    TOKENS = "tokens"


class Mode(StrEnum):
    """How a batch runs."""

    FULL = "full"
    """One graph for the whole step."""
    PIECEWISE = "piecewise"
    EAGER = "eager"
    FAILS = "fails"
    """The runner looks a graph up that is not there, and raises."""


@dataclass(frozen=True, slots=True)
class Served:
    """What serves a batch."""

    mode: Mode
    key: int | None = None
    """The size of the graph; None without one."""


@dataclass(frozen=True, slots=True)
class KeySet:
    """All keys of one kind of step: decode, or the draft and verify steps of speculative decoding, each its own set."""

    name: str
    full: tuple[int, ...]
    """Sizes of full graphs that can be looked up, ascending, in `unit`."""
    most: int
    """Requests that such a step can have at most."""
    unit: Unit = Unit.REQUESTS
    width: int = 1
    """Tokens of each request in such a step: 1, or 1 + draft tokens."""
    uniform: bool = False
    """Whether a full graph holds whole requests of `width` tokens only; matters where sizes are tokens."""
    piecewise: tuple[int, ...] = ()
    """Sizes of piecewise graphs, ascending."""
    for_mixed: bool = False
    """Whether full graphs serve steps with prefill tokens too: then no size is too large to be of use."""
    padded: bool = True
    """Whether a batch runs in the next larger key; else only in the one of its own size."""
    adapters: tuple[int, ...] = ()
    """Numbers of active adapters that every size is captured for; empty: adapters are no part of the key."""
    most_adapters: int = 0
    """Adapters that a batch can have at most."""
    fails_up_to: int = 0
    """Up to this size a batch without a key raises; above it is eager."""

    def size(self, requests: int) -> int:
        """What a key has to hold for so many requests."""
        return requests * self.width if self.unit is Unit.TOKENS else requests

    def aligned(self, size: int) -> bool:
        """Whether full graphs may take a batch of this size: whole, equally long requests where they hold no others."""
        return self.unit is Unit.REQUESTS or not self.uniform or size % self.width == 0

    def serve(self, size: int) -> Served:
        """What serves a batch of this size, in `unit`."""
        for mode, sizes in ((Mode.FULL, self.full if self.aligned(size) else ()), (Mode.PIECEWISE, self.piecewise)):
            key = fitting(sizes, size, padded=self.padded)
            if key is not None:
                return Served(mode, key)
        return Served(Mode.FAILS if size <= self.fails_up_to else Mode.EAGER)

    def serves_adapters(self, active: int) -> bool:
        """Whether a batch with so many active adapters finds a key: the next larger count, or the graph without any."""
        if not self.adapters:
            return True
        return active in self.adapters if active == 0 else any(count >= active for count in self.adapters)

    @property
    def graphs(self) -> int:
        """How many graphs are captured."""
        return (len(self.full) + len(self.piecewise)) * max(1, len(self.adapters))


@dataclass(frozen=True, slots=True)
class Configuration:
    """An engine's keys, as its configuration makes them."""

    source: str
    """The file's name, or the option that the list came from."""
    engine: str
    sets: tuple[KeySet, ...]
    rule: str = ""
    """The default rule that made the list; "" where the list was given."""
    rule_assumed: bool = False
    """Whether the rule is the newest known one, and not one that the user named."""
    origin: str = ""
    """The rule in words, with version and source; or "as given"."""
    mixed_uncovered: str = ""
    """Why steps that mix prefill and decode have no graph, where the engine makes such steps; "" otherwise."""
    turned_off: str = ""
    """The option that turns graphs off; "" if they are on."""
    untidy: tuple[str, ...] = ()
    """What was odd about the list: duplicates, order, values that the engine drops. In sentences."""
    unread: tuple[str, ...] = ()
    """Options that say nothing about keys, or that the audit does not know."""
    unknown: tuple[str, ...] = ()
    """What the configuration does not tell and matters, in sentences."""


def fitting(sizes: Sequence[int], size: int, *, padded: bool) -> int | None:
    """The smallest of ascending `sizes` that holds `size`; the one that equals it, without padding."""
    at = bisect_left(sizes, size)
    if at == len(sizes) or (not padded and sizes[at] != size):
        return None
    return sizes[at]


def spans(numbers: Iterable[int]) -> str:
    """`3, 5 to 7, 17 to 20`."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    said = [str(a) if a == b else f"{a} and {b}" if b == a + 1 else f"{a} to {b}" for a, b in runs]
    return ", ".join(said) if len(said) <= 6 else ", ".join([*said[:5], "...", said[-1]])
