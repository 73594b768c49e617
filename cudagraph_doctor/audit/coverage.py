"""What no key serves: every number of requests up to the declared most, every number of adapters, and idle keys."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from cudagraph_doctor.audit.keys import Configuration, KeySet, Mode, Unit


class Kind(StrEnum):
    """What kind of gap it is."""

    ABOVE = "above the largest key"
    INSIDE = "between keys"
    SPECULATIVE = "no key of whole requests"
    """Sizes are tokens, each request has several, and no key fits."""
    PIECEWISE = "piecewise only"
    """Other batches of the same set have full graphs."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Batches of one set that miss for one reason."""

    keys: KeySet
    kind: Kind
    requests: tuple[int, ...]
    """Numbers of requests, ascending."""
    modes: tuple[Mode, ...]
    """What happens to them: eager, fails, piecewise."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """What a key would have to hold."""
        return tuple(self.keys.size(n) for n in self.requests)


def gaps(keys: KeySet) -> list[Gap]:
    """All gaps of a set."""
    found: dict[Kind, dict[int, Mode]] = defaultdict(dict)
    largest = max((*keys.full, *keys.piecewise), default=0)
    for requests in range(1, keys.most + 1):
        size = keys.size(requests)
        mode = keys.serve(size).mode
        if mode is Mode.FULL or (mode is Mode.PIECEWISE and not keys.full):
            continue
        if mode is Mode.PIECEWISE:
            kind = Kind.PIECEWISE
        elif keys.unit is Unit.TOKENS and keys.width > 1:
            kind = Kind.SPECULATIVE
        else:
            kind = Kind.ABOVE if size > largest else Kind.INSIDE
        found[kind][requests] = mode
    return [Gap(keys, kind, tuple(modes), tuple(dict.fromkeys(modes.values()))) for kind, modes in found.items()]


def adapters_without_key(keys: KeySet) -> tuple[int, ...]:
    """Numbers of active adapters that no graph is captured for."""
    return tuple(n for n in range(keys.most_adapters + 1) if not keys.serves_adapters(n))


def unreachable(keys: KeySet) -> tuple[int, ...]:
    """Full keys that no batch up to the most requests is looked up under. A key for a mixed step is not among them."""
    if keys.for_mixed:
        return ()
    used = {keys.serve(keys.size(n)).key for n in range(1, keys.most + 1)}
    return tuple(size for size in keys.full if size not in used and size not in keys.piecewise)


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Keys of one set that not all ranks capture."""

    name: str
    ranks: tuple[tuple[int, tuple[int, ...]], ...]
    """(rank, keys that others have and it has not), for those that lack some."""


def disagreements(configurations: Sequence[Configuration]) -> Iterator[Disagreement]:
    """Where several configurations, one a rank, make other keys."""
    by_name: dict[str, list[set[int]]] = defaultdict(lambda: [set() for _ in configurations])
    for rank, configuration in enumerate(configurations):
        for keys in configuration.sets:
            by_name[keys.name][rank] |= {*keys.full, *keys.piecewise}
    for name, ranks in by_name.items():
        every = set().union(*ranks)
        lacking = tuple((rank, tuple(sorted(every - own))) for rank, own in enumerate(ranks) if every - own)
        if lacking:
            yield Disagreement(name, lacking)
