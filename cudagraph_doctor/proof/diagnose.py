"""A step is bad: who did it? Tries the remedies, most telling first, and names what heals.

The reference that a mended replay has to reach is the fresh graph's result where that is right (bit for bit), else the
eager one (as near as rounding).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from cudagraph_doctor.errors import DoctorError
from cudagraph_doctor.graph.backend import LiveGraph
from cudagraph_doctor.graph.model import CapturedGraph, GraphNode, Origin
from cudagraph_doctor.graph.regions import NamedRange, Regions
from cudagraph_doctor.proof import places
from cudagraph_doctor.proof.arms import Arm, Arms, Result, span
from cudagraph_doctor.proof.compare import Level
from cudagraph_doctor.proof.nodes import Unlike, address_suspects, baked_remedies, first_unlike
from cudagraph_doctor.proof.repair import (
    Cause,
    Remedy,
    Scene,
    first_healer,
    input_remedies,
    look,
    moved_remedies,
    padding_moves,
    tail_remedies,
    transplants,
    try_out,
)
from cudagraph_doctor.proof.subject import Held, Planned
from cudagraph_doctor.proof.verdict import Gap

MAX_TRIALS = 100
"""Remedies tried at one step; what is left over is said."""


@dataclass(slots=True)
class Diagnosis:
    """Who did it, as far as it could be shown."""

    culprits: list[Remedy] = field(default_factory=list)
    """What heals: one, or a smallest set (as many faults). Empty: nothing tried heals."""
    confirmed: bool = False
    """Healed (or, for a graph that is gone, forced on its successor)."""
    forced: bool = False
    """Confirmed the other way round: a good graph turned as bad with the culprit's content."""
    tried: int = 0
    unlike: Unlike | None = None
    """Where the nodes of the old and of the fresh graph part."""
    launched: Origin | None = None
    """Who launched the accused node."""
    suspects: list[Remedy] = field(default_factory=list)
    """Wrong, but mending them does not heal."""
    not_read: dict[str, int] = field(default_factory=dict)
    """Reason -> number of nodes that could not be read."""
    scene: Scene | None = None
    """The tensors around the bad replay, kept for when its graph is gone."""


class Doctor:
    """Diagnoses bad steps of one subject. `compare` measures the gap between a result and a reference."""

    def __init__(self, arms: Arms, compare: Callable[[Result, Result], Gap]) -> None:
        self._arms = arms
        self._compare = compare
        self._known: list[Remedy] = []

    def before_recapture(self, at: Planned, eager: Result, bad: Gap) -> Diagnosis:
        """What can be tried while the old graph is there, against eager.

        For subjects whose recapture replaces the graph (engines): nothing else can be tried later.
        """
        scene = look(self._arms, at)
        truth = self._arms.subject.truth(at)
        remedies = [*moved_remedies(scene), *input_remedies(scene, truth or scene.live, at, bool(truth))]
        if bad.output_level is not Level.LARGE and not bad.state.wrong:
            # rounding: only what its own namesake contradicts is worth a try
            remedies = [r for r in remedies if r.namesake]
        found = self._try(at, remedies, self._near(eager, bad))
        if not found.culprits:
            self._try_padding(at, scene, eager, bad, found)
        found.scene = scene
        return found

    def with_fresh(self, at: Planned, fresh: Result, eager: Result, bad: Gap, frozen: bool) -> Diagnosis:
        """What can be tried with both graphs at hand (loops).

        Args:
            at: the step.
            fresh: result of the graph captured now.
            eager: result of the eager arm.
            bad: the gap between replayed and the reference.
            frozen: whether fresh is right, and so the reference.
        """
        scene = look(self._arms, at)
        now = look(self._arms, at, Arm.FRESH)
        truth = self._arms.subject.truth(at)
        remedies = [*moved_remedies(scene), *input_remedies(scene, truth, at, True)]
        if frozen:
            remedies += tail_remedies(scene, now.contents, at)
        heals = self._exact(fresh, bool(bad.outputs)) if frozen else self._near(eager, bad)
        found = self._try(at, remedies, heals)
        if found.culprits:
            return found
        if not frozen:
            self._try_padding(at, scene, eager, bad, found)
            return found
        old, new = self.read(scene.held), self.read(now.held)
        for graph in (*old, *new):
            found.not_read |= graph.not_read
        for held, a, b in zip(scene.held, old, new, strict=False):
            found.unlike = first_unlike(a, b)
            if found.unlike is None:
                baked = self._try_baked(at, baked_remedies(held.live, a, b), heals, found.tried, remedies)
                found.culprits, found.confirmed, found.tried = baked.culprits, baked.confirmed, baked.tried
            found.launched = self._launched(at, b, found)
        return found

    def after_recapture(
        self, at: Planned, old: Sequence[CapturedGraph], scene: Scene, bad: Result, fresh: Result
    ) -> Diagnosis:
        """For engines: the old graph is gone. Does the new one turn as bad when it is given what the old one had?"""
        found = Diagnosis()
        held = self._arms.subject.held(at, fresh=True)

        def as_bad(remedy: Remedy) -> bool:
            found.tried += 1
            result = try_out(self._arms, at, [remedy], Arm.FRESH)
            return found.tried <= MAX_TRIALS and self._compare(result, bad).level is Level.EQUAL

        stale = transplants(scene, look(self._arms, at, Arm.FRESH), at)
        found.culprits = next(([r] for r in stale if as_bad(r)), [])
        for one, a, b in zip(held, old, self.read(held), strict=False):
            found.unlike = first_unlike(a, b)
            if found.unlike is None and not found.culprits:
                baked = baked_remedies(one.live, b, a)
                found.culprits = next(([r] for r in baked if as_bad(r)), [])
            found.launched = self._launched(at, b, found)
        found.confirmed = found.forced = bool(found.culprits)
        for remedy in found.culprits:  # they did harm: what they wrote is what was wrong
            remedy.was, remedy.expected = remedy.expected, remedy.was
            remedy.held, remedy.right = remedy.right, remedy.held
        if not found.culprits:
            found.culprits = [r for a, b in zip(old, self.read(held), strict=False) for r in address_suspects(a, b)]
        return found

    def _launched(self, at: Planned, graph: CapturedGraph, found: Diagnosis) -> Origin | None:
        accused: GraphNode | None = None
        if found.unlike is not None:
            accused = found.unlike.new
        elif found.culprits and found.culprits[0].edits:
            accused = graph.nodes[found.culprits[0].edits[0][1].node]
        return places.launched(self._arms, at, graph, accused) if accused else None

    def read(self, held: Sequence[Held]) -> list[CapturedGraph]:
        """Read the graphs, with the captured names for their addresses. Unreadable graphs are left out."""
        graphs = []
        for one in held:
            try:
                graphs.append(self._arms.backend.read(one.live, regions_of(one, set(self._weights()))))
            except DoctorError:
                continue
        return graphs

    def _weights(self) -> list[str]:
        return [
            n for n, t in self._arms.look_around().tensors.items() if t.requires_grad or type(t).__name__ == "Parameter"
        ]

    def _exact(self, reference: Result, by_outputs: bool) -> Callable[[Result], bool]:
        """Bit for bit as the fresh graph. State counts where it alone was wrong: rows that nobody owns may differ."""

        def heals(result: Result) -> bool:
            gap = self._compare(result, reference)
            return not gap.outputs if by_outputs else not gap.state.wrong

        return heals

    def _near(self, eager: Result, bad: Gap) -> Callable[[Result], bool]:
        def heals(result: Result) -> bool:
            gap = self._compare(result, eager)
            if gap.level is Level.EQUAL:
                return True
            # rounding is left over where graph and eager use other kernels; a remedy has to take the rest away
            if gap.output_level is Level.LARGE or gap.state.wrong >= bad.state.wrong > 0:
                return False
            return bad.level is Level.LARGE or gap.relative < bad.relative / 10

        return heals

    def _try(self, at: Planned, remedies: Sequence[Remedy], heals: Callable[[Result], bool]) -> Diagnosis:
        found = Diagnosis()

        def good(some: Sequence[Remedy]) -> bool:
            found.tried += 1
            return found.tried <= MAX_TRIALS and heals(try_out(self._arms, at, some))

        # what was guilty before is asked first
        names = {r.name for r in self._known}
        ordered = sorted(remedies, key=lambda r: r.name not in names)
        found.culprits = first_healer(ordered, good)
        found.confirmed = bool(found.culprits)
        found.suspects = [r for r in remedies if r.name not in {c.name for c in found.culprits}]
        self._known += found.culprits
        return found

    def _try_padding(self, at: Planned, scene: Scene, eager: Result, bad: Gap, found: Diagnosis) -> None:
        """Whose padding rows address the state that was hit? The one whose values take the damage elsewhere."""
        hit = set(_hit(bad))
        for remedy in padding_moves(scene, at, hit):
            found.tried += 1
            moved = set(_hit(self._compare(try_out(self._arms, at, [remedy]), eager)))
            if not hit & moved:
                found.culprits, found.confirmed = [remedy], True
                return

    def _try_baked(
        self, at: Planned, baked: list[Remedy], heals: Callable[[Result], bool], tried: int, others: list[Remedy]
    ) -> Diagnosis:
        found = Diagnosis(tried=tried)

        def good(some: Sequence[Remedy]) -> bool:
            found.tried += 1
            try:
                return found.tried <= MAX_TRIALS and heals(try_out(self._arms, at, some))
            except DoctorError:  # a node that cannot be patched
                return False

        together = [*_one_each(others), *baked]
        if baked and good(baked):
            found.culprits = _smallest(baked, good)
        elif baked and others and good(together):  # a by-value parameter and an input at once: two faults
            found.culprits = _smallest(together, good)
        else:  # one that cannot be set spoils the lot
            found.culprits = next(([remedy] for remedy in baked if good([remedy])), [])
        found.confirmed = bool(found.culprits)
        return found


def _hit(bad: Gap) -> list[int]:
    return [place.linear for place in bad.state.places if place.kind == "extra"]


def _one_each(remedies: Sequence[Remedy]) -> list[Remedy]:
    return list({r.name: r for r in reversed(remedies)}.values())[::-1]


def _smallest(remedies: list[Remedy], good: Callable[[Sequence[Remedy]], bool]) -> list[Remedy]:
    """Halve while a half heals alone, then leave out one by one: uninitialised bytes fall away."""
    while len(remedies) > 1:
        middle = len(remedies) // 2
        if good(remedies[:middle]):
            remedies = remedies[:middle]
        elif good(remedies[middle:]):
            remedies = remedies[middle:]
        else:
            break
    for remedy in list(remedies):
        fewer = [r for r in remedies if r is not remedy]
        if fewer and good(fewer):
            remedies = fewer
    return remedies


def regions_of(held: Held, weights: set[str]) -> Regions:
    """Names of the memory that was around at the capture."""
    ranges = []
    for name, tensor in held.tensors.items():
        start, size = span(tensor)
        kind = "input" if name in held.inputs else "weight" if name in weights else "root"
        if size:
            ranges.append(NamedRange(kind, name, start, size))
    return Regions(ranges)


__all__ = ["Cause", "Diagnosis", "Doctor", "LiveGraph", "Scene", "regions_of"]
