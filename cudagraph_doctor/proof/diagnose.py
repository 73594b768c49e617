"""A step is bad: who did it? Tries the remedies, most telling first, and names what heals.

The reference that a mended replay has to reach is the fresh graph's result where that is right (bit for bit), else the
eager one (as near as rounding).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from cudagraph_doctor.errors import DoctorError
from cudagraph_doctor.graph.backend import LiveGraph
from cudagraph_doctor.graph.model import CapturedGraph, Origin
from cudagraph_doctor.proof import binding, host_inputs, places, repaired
from cudagraph_doctor.proof.abandoned import abandoned_remedies
from cudagraph_doctor.proof.arms import Arm, Arms, Result
from cudagraph_doctor.proof.compare import Level
from cudagraph_doctor.proof.nodes import Unlike, address_suspects, baked_remedies, first_unlike, harmful_remedies
from cudagraph_doctor.proof.reading import read
from cudagraph_doctor.proof.repair import (
    Cause,
    Remedy,
    first_healer,
    input_remedies,
    moved_remedies,
    needed,
    one_each,
    padding_moves,
    tail_remedies,
    transplants,
    try_out,
)
from cudagraph_doctor.proof.scene import Scene, look
from cudagraph_doctor.proof.subject import Held, Planned
from cudagraph_doctor.proof.verdict import Gap

_BESIDE = 8
"""Names that lead elsewhere and are looked at where nothing heals."""
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
    beside: list[Remedy] = field(default_factory=list)
    """Where nothing heals: names that lead elsewhere by now, while the graph reads what they left behind. Writing what
    they lead to now into that memory changes the result, so something else is wrong besides."""
    names: set[str] = field(default_factory=set)
    """What remedies were tried on."""
    tried: int = 0
    unlike: Unlike | None = None
    """Where the nodes of the old and of the fresh graph part."""
    launched: Origin | None = None
    """Who launched the accused node."""
    not_read: dict[str, int] = field(default_factory=dict)
    """Reason -> number of nodes that could not be read."""
    scene: Scene | None = None
    """The tensors around the bad replay, kept for when its graph is gone."""


Pair = tuple[LiveGraph, CapturedGraph, CapturedGraph]
"""The graph that can be patched; what the one captured earlier launches; what the one captured now launches."""


@dataclass(frozen=True, slots=True)
class Bad:
    """A bad step at which nothing has healed so far."""

    at: Planned
    scene: Scene
    now: Scene | None
    """The scene of a graph captured now, where there is one yet."""
    gap: Gap
    """Replayed against the reference."""


MoreRemedies = Callable[[Bad], Sequence[Remedy]]
"""What a check knows to try besides."""


class Doctor:
    """Diagnoses bad steps of one subject.

    Args:
        arms: its arms.
        compare: measures the gap between a result and a reference.
        more: asked for further remedies where none of the usual ones heals.
    """

    def __init__(
        self, arms: Arms, compare: Callable[[Result, Result], Gap], more: MoreRemedies = lambda _bad: ()
    ) -> None:
        self._arms = arms
        self._compare = compare
        self._more = more
        self._known: list[Remedy] = []

    def before_recapture(self, at: Planned, eager: Result, bad: Gap) -> Diagnosis:
        """For engines, whose recapture replaces the graph: what can be tried while it is there, against eager."""
        scene = look(self._arms, at)
        remedies = [*moved_remedies(scene), *input_remedies(scene, scene.live, at, known_names=False)]
        if bad.output_level is not Level.LARGE and not bad.state.wrong:
            # rounding: only what its own namesake contradicts is worth a try
            remedies = [r for r in remedies if r.namesake]
        found = self._try(at, remedies, self._near(eager, bad))
        if not found.culprits and bad.level is Level.LARGE:
            abandoned = abandoned_remedies(self._arms, scene, self.read(scene.held))
            usual, found = found, self._try(at, abandoned, self._near(eager, bad))
            found.tried, found.names = found.tried + usual.tried, found.names | usual.names
        if not found.culprits:
            self._try_padding(at, scene, eager, bad, found)
        if not found.culprits:
            found.beside = self._beside(at, scene)
            self._try_more(Bad(at, scene, None, bad), self._near(eager, bad), found)
        found.scene = scene
        self._mark(at, found, scene)
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
        truth = dict(self._arms.truth(at))
        if bad.level is Level.LARGE:
            truth |= host_inputs.in_tensors(self._arms, at, scene.captured)
        remedies = [*moved_remedies(scene), *input_remedies(scene, truth, at, known_names=True)]
        if frozen:
            remedies += tail_remedies(scene, now.contents, at)
        heals = self._exact(fresh, bool(bad.outputs)) if frozen else self._near(eager, bad)
        found = self._try(at, remedies, heals)
        if not frozen and not found.culprits:
            self._try_padding(at, scene, eager, bad, found)
        if found.culprits:
            self._mark(at, found, scene)
            return found
        graphs = list(zip(scene.held, self.read(scene.held), self.read(now.held), strict=False))
        pairs = [(held.live, old, new) for held, old, new in graphs if old and new]
        for _, old, new in pairs:
            found.not_read |= old.not_read | new.not_read
        if not self._launches_unlike(at, pairs, found):
            self._try_baked(at, baked_remedies(pairs), heals, found, remedies)
            self._look_up_launch(at, pairs, found)
        if not found.culprits:
            found.beside = self._beside(at, scene)
            self._try_more(Bad(at, scene, now, bad), heals, found)
        self._mark(at, found, scene)
        return found

    def after_recapture(
        self, at: Planned, before: Sequence[CapturedGraph | None], scene: Scene, bad: Result
    ) -> Diagnosis:
        """For engines: the old graph is gone. Does the new one turn as bad when it is given what the old one had?"""
        found = Diagnosis()
        held = self._arms.subject.held(at, fresh=True)
        as_bad = self._trial(at, found, lambda result: self._compare(result, bad).level is Level.EQUAL, Arm.FRESH)
        stale = transplants(scene, look(self._arms, at, Arm.FRESH), at)
        tails = [remedy for remedy in stale if remedy.cause is Cause.STALE_TAIL]
        found.culprits = first_healer(tails, as_bad) or first_healer(stale, as_bad)
        graphs = zip(held, before, self.read(held), strict=False)
        pairs = [(one.live, old, new) for one, old, new in graphs if old and new]
        if not self._launches_unlike(at, pairs, found) and not found.culprits:
            harm = harmful_remedies(pairs)
            found.culprits = next(([r] for r in harm if as_bad([r])), [])
            self._look_up_launch(at, pairs, found)
        found.confirmed = found.forced = bool(found.culprits)
        for remedy in found.culprits:  # they did harm: what they wrote is what was wrong
            remedy.was, remedy.expected = remedy.expected, remedy.was
            remedy.held, remedy.right = remedy.right, remedy.held
        if not found.culprits:
            found.culprits = [r for _, old, new in pairs for r in address_suspects(old, new)]
        repaired.mark(found.culprits, scene, before, at, found.launched)
        return found

    def _mark(self, at: Planned, found: Diagnosis, scene: Scene) -> None:
        for remedy in found.culprits[:1]:
            if remedy.cause is Cause.ATTRIBUTE or (remedy.cause is Cause.REBOUND and remedy.buffer is not None):
                remedy.notes["line"] = binding.bound_at(self._arms, at, remedy.name)
        graphs = self.read(scene.held) if found.culprits or found.beside else []
        repaired.mark([*found.culprits, *found.beside], scene, graphs, at, found.launched)

    def _beside(self, at: Planned, scene: Scene) -> list[Remedy]:
        """Of names that lead elsewhere, those whose old memory the graph reads: see `Diagnosis.beside`."""
        moved = moved_remedies(scene)[:_BESIDE]
        as_it_is = self._arms.run(Arm.REPLAYED, at) if moved else None
        return [one for one in moved if as_it_is and self._compare(try_out(self._arms, at, [one]), as_it_is).outputs]

    def _launches_unlike(self, at: Planned, pairs: Sequence[Pair], found: Diagnosis) -> bool:
        """Whether a graph launches other work than its counterpart captured now; who launched that is looked up."""
        for _, old, new in pairs:
            found.unlike = first_unlike(old, new)
            if found.unlike is not None:
                if found.unlike.new is not None:
                    found.launched = places.launched(self._arms, at, new, found.unlike.new)
                elif found.unlike.old is not None:  # of the old graph alone: looked up where that was captured
                    earlier = replace(at, step=self._arms.beyond)
                    found.launched = places.launched(self._arms, earlier, old, found.unlike.old)
                return True
        return False

    def _look_up_launch(self, at: Planned, pairs: Sequence[Pair], found: Diagnosis) -> None:
        """Who launched the kernel whose parameter is the culprit."""
        for live, edit in (found.culprits[0].edits if found.culprits else ())[:1]:
            new = next(new for one, _, new in pairs if one is live)
            found.launched = places.launched(self._arms, at, new, new.nodes[edit.node])

    def read(self, held: Sequence[Held]) -> list[CapturedGraph | None]:
        """See `reading.read`."""
        return read(self._arms, held)

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

    def _trial(
        self, at: Planned, found: Diagnosis, heals: Callable[[Result], bool], arm: Arm = Arm.REPLAYED
    ) -> Callable[[Sequence[Remedy]], bool]:
        """A function that runs the step with some remedies and tells whether they heal; counts, up to MAX_TRIALS."""

        def trial(some: Sequence[Remedy]) -> bool:
            if found.tried == MAX_TRIALS:
                left = f"step {at.step}: {MAX_TRIALS} remedies were tried, further ones were not"
                if left not in self._arms.subject.not_checked:
                    self._arms.subject.not_checked.append(left)
                return False
            found.tried += 1
            found.names |= {remedy.name for remedy in some}
            try:
                return heals(try_out(self._arms, at, some, arm))
            except DoctorError:  # a node that cannot be patched
                return False

        return trial

    def _try(self, at: Planned, remedies: Sequence[Remedy], heals: Callable[[Result], bool]) -> Diagnosis:
        found = Diagnosis()
        # what was guilty before is asked first
        names = {r.name for r in self._known}
        ordered = sorted(remedies, key=lambda r: r.name not in names)
        found.culprits = first_healer(ordered, self._trial(at, found, heals))
        found.confirmed = bool(found.culprits)
        self._known += found.culprits
        return found

    def _try_more(self, bad: Bad, heals: Callable[[Result], bool], found: Diagnosis) -> None:
        trial = self._trial(bad.at, found, heals)
        more = list(self._more(bad))
        if bad.gap.level is Level.LARGE:
            more += host_inputs.left_out(self._arms, bad.at)
        found.culprits = first_healer([remedy for remedy in more if remedy.capture is None], trial)
        if not found.culprits:  # last: an engine's graphs are replaced by it
            found.culprits = self._recaptured(bad.at, [r for r in more if r.capture is not None], trial, heals)
        found.confirmed = bool(found.culprits)

    def _recaptured(
        self,
        at: Planned,
        remedies: Sequence[Remedy],
        trial: Callable[[Sequence[Remedy]], bool],
        heals: Callable[[Result], bool],
    ) -> list[Remedy]:
        """The first that heals. None where a graph captured now heals as it is: something else is frozen then."""
        for number, remedy in enumerate(remedies):
            assert remedy.capture is not None
            if number == 0:
                try:
                    remedy.capture(False)
                    if heals(self._arms.run(Arm.FRESH, at)):
                        return []
                except DoctorError:  # nothing can be captured now
                    return []
            if trial([remedy]):
                return [remedy]
        return []

    def _try_padding(self, at: Planned, scene: Scene, eager: Result, bad: Gap, found: Diagnosis) -> None:
        """Whose padding rows address the state that was hit? The one whose values take the damage elsewhere."""
        hit = _hit(bad)

        def spared(some: Sequence[Remedy]) -> bool:
            found.tried += 1
            return not hit & _hit(self._compare(try_out(self._arms, at, some), eager))

        found.culprits = first_healer(padding_moves(scene, at, {number for _, number in hit}), spared)
        found.confirmed = bool(found.culprits)

    def _try_baked(
        self,
        at: Planned,
        baked: list[Remedy],
        heals: Callable[[Result], bool],
        found: Diagnosis,
        others: Sequence[Remedy],
    ) -> None:
        good = self._trial(at, found, heals)
        together = [*one_each(others), *baked]
        if baked and good(baked):
            found.culprits = _smallest(baked, good)
        elif baked and others and good(together):  # a by-value parameter and an input at once: two faults
            found.culprits = _smallest(together, good)
        else:  # one that cannot be set spoils the lot
            found.culprits = next(([remedy] for remedy in baked if good([remedy])), [])
        found.confirmed = bool(found.culprits)


def _hit(bad: Gap) -> set[tuple[str, int]]:
    """State that the graph alone wrote, or wrote otherwise: (tensor, slot)."""
    return {(place.name, place.linear) for place in bad.state.places if place.kind != "missing"}


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
    return needed(remedies, good)
