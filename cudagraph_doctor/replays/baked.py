"""What did captures bake in that changes from step to step? Judges dumps; plain Python, no torch.

Dumps of one key are put side by side: what the first one launches gives the numbering (`launches`), each parameter is
compared through all captures (`words`), and a number is named by the host value that it goes along with (`following`).
What comes out are candidates. A constant, a bucket's upper bound say, is the same in all captures and never shows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cudagraph_doctor.replays.candidates import (
    CODES,
    EACH_CAPTURE,
    Candidate,
    Input,
    Kind,
    input_of,
    kernel_name,
    named,
)
from cudagraph_doctor.replays.following import followed
from cudagraph_doctor.replays.launches import Aligned, align, differing_launches, unsteady
from cudagraph_doctor.replays.model import Dump, Flag, Place
from cudagraph_doctor.replays.remains import memory
from cudagraph_doctor.replays.series import Captures
from cudagraph_doctor.replays.words import compare


@dataclass(frozen=True, slots=True)
class Judged:
    """What came out."""

    candidates: tuple[Candidate, ...] = ()
    noise_bytes: int = 0
    """Bytes of parameters that differ between captures with nothing changed."""
    unsteady: tuple[tuple[str, Input], ...] = ()
    """(key, input) whose captures launch now this, now that, with nothing changed: nothing is said about them."""
    single: tuple[str, ...] = ()
    """Keys of which fewer than two inputs were captured: nothing to compare."""


@dataclass(frozen=True, slots=True)
class WeakKey:
    """Two inputs with one key and different captures."""

    key: str
    graph: int
    """The how manieth graph of the step."""
    first: Input
    other: Input
    candidates: tuple[Candidate, ...]
    """What is baked in and not in the key."""

    @property
    def missing(self) -> tuple[str, ...]:
        """The host values, by path, that the key leaves out; empty if they are not known by name."""
        return tuple(dict.fromkeys(one.follows for one in self.candidates if one.follows))


def judge(dumps: Sequence[Dump]) -> Judged:
    """Compare all dumps, given in the order of capture."""
    candidates: list[Candidate] = []
    noise, left_out, single = 0, [], []
    for key, graph in dict.fromkeys((dump.key, dump.graph) for dump in dumps):
        some = [dump for dump in dumps if (dump.key, dump.graph) == (key, graph)]
        wild = unsteady(some)
        left_out += [(key, at) for at in sorted(wild)]
        some = [dump for dump in some if input_of(dump) not in wild]
        if len(some) < 2:
            single.append(key)
            continue
        aligned = align(some)
        found, more = _parameters(aligned)
        noise += more
        candidates += [*_named(differing_launches(aligned), some), *_named(found, some)]
    return Judged(tuple(_layers_together(candidates)), noise, tuple(left_out), tuple(dict.fromkeys(single)))


def _parameters(aligned: Sequence[Aligned]) -> tuple[list[Candidate], int]:
    """Candidates among the parameters, and the number of bytes that are noise."""
    found: list[Candidate] = []
    noise = 0
    memories = {id(one): memory(one.dump.nodes, one.dump.host_memory) for one in aligned}
    for index, node in enumerate(aligned[0].dump.nodes):
        there = [one for one in aligned if index in one.nodes and not one.nodes[index].unreadable]
        captures = Captures(tuple(input_of(one.dump) for one in there), tuple(one.dump.moved_on > 0 for one in there))
        for position in range(min((len(one.nodes[index].params) for one in there), default=0)):
            params = [one.nodes[index].params[position] for one in there]
            differing = compare(captures, params, [memories[id(one)] for one in there])
            noise += differing.noise
            found += [
                Candidate(
                    kind,
                    aligned[0].dump.key,
                    aligned[0].dump.graph,
                    kernel_name(node),
                    (index,),
                    captures.inputs if kind in EACH_CAPTURE else tuple(captures.of_inputs(params)),
                    params[0].index,
                    params[0].name,
                    tuple(parts),
                    location=node.origin.location if node.origin else None,
                )
                for kind, parts in differing.parts.items()
            ]
    return found, noise


def _named(candidates: Iterable[Candidate], dumps: Sequence[Dump]) -> list[Candidate]:
    return [replace(candidate, follows=_follows(candidate, dumps)) for candidate in candidates]


def _follows(candidate: Candidate, dumps: Sequence[Dump]) -> str:
    """The host value that the first of the parts that goes along with one goes along with."""
    there = [dump for dump in dumps if candidate.nodes[0] < len(dump.nodes)]
    for part in candidate.parts:
        if candidate.kind in EACH_CAPTURE and len(part.values) == len(there):
            told, values = there, list(part.values)
        elif candidate.kind not in EACH_CAPTURE:
            by_input = dict(zip(candidate.seen_at, part.values, strict=True))
            # where the host was moved on as well: what only went along with the steps does so no longer
            told = [dump for dump in dumps if input_of(dump) in by_input]
            values = [_single(by_input[input_of(dump)]) for dump in told]
        else:
            continue
        if path := followed(values, told):
            return path
    return ""


def weak_keys(candidates: Iterable[Candidate]) -> list[WeakKey]:
    """Keys under which the runner looks up one graph for inputs whose captures differ.

    What is another value at every step is not counted: no key could hold it.
    """
    found: dict[tuple[str, int, Input, Input], list[Candidate]] = {}
    for one in candidates:
        if one.kind in EACH_CAPTURE or not one.steady:
            continue
        values = one.values
        first = one.seen_at[0]
        other = next(at for at in one.seen_at if values[at] != values[first])
        found.setdefault((one.key, one.graph, first, other), []).append(one)
    return [WeakKey(key, graph, first, other, tuple(some)) for (key, graph, first, other), some in found.items()]


def _single(value: object) -> object:
    """A grid's one dimension that matters stands for it."""
    if isinstance(value, tuple) and len(value) == 3 and value[1:] == (1, 1):
        return value[0]
    return value


def _layers_together(candidates: Iterable[Candidate]) -> list[Candidate]:
    """One for the same parameter of the same kernel with the same values, however many layers launch it."""
    together: dict[tuple[object, ...], Candidate] = {}
    for one in candidates:
        what = (one.kind, one.key, one.graph, one.name, one.param, one.parts, one.location)
        known = together.get(what)
        together[what] = one if known is None else replace(known, nodes=(*known.nodes, *one.nodes))
    return list(together.values())


def flags(judged: Judged, spoken: Collection[str] = ()) -> list[Flag]:
    """The candidates as flags. Other launches than those that were `spoken` of by their code are marked as harmless."""
    found = []
    for one in judged.candidates:
        code = CODES[one.kind]
        values = [list(part.values) for part in one.parts]
        place = None if one.kind is Kind.NODES else Place(one.graph, one.nodes[0], one.param)
        if one.parts and place is not None:
            place = replace(place, offset=one.parts[0].offset, bytes=one.parts[0].bytes)
        evidence: dict[str, Any] = {
            "key": one.key,
            "kind": one.kind.value,
            "inputs": [list(at) for at in one.seen_at],
            "values": values,
        }
        if one.follows:
            evidence["follows"] = one.follows
        if one.kind in (Kind.LAUNCH, Kind.NODES) and code not in spoken:
            evidence["harmless"] = True
        kind = {Kind.LAUNCH: "launch", Kind.NODES: "node"}.get(one.kind, "parameter")
        found.append(
            Flag(code, None, place=place, name=named(one), kind=kind, evidence=evidence, location=one.location)
        )
    return found
