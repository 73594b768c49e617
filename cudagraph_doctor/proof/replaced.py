"""Tensors that are put in another's place by one side alone: a graph keeps the old one, all else takes the new.

Memory is put back between arms by address, so no arm shows it rightly. Shown instead by playing steps in a row: one
through its graph, the later ones eagerly, as a prefill or a fallback would.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

import torch

from cudagraph_doctor.findings import Location
from cudagraph_doctor.proof import binding
from cudagraph_doctor.proof.arms import Arms, Result
from cudagraph_doctor.proof.compare import Difference, Level, compare, same_bits, worst
from cudagraph_doctor.proof.repair import corner
from cudagraph_doctor.proof.subject import Planned
from cudagraph_doctor.settings import Tolerance
from cudagraph_doctor.walk import walk

_ONE_BY_ONE = 16
"""So many names are looked at one by one; of more, all are told."""


class By(StrEnum):
    """Who puts another tensor in place, and what the graph misses by it."""

    STAGING_OF_STATE = "a graph step's staging, of state"
    STAGING = "a graph step's staging"
    """What steps only read: a weight."""
    STEP = "every eager step"
    """A replay runs no Python, so it puts nothing in place."""


@dataclass(frozen=True, slots=True)
class Replaced:
    """What was put in another's place, and what came of it."""

    names: tuple[str, ...]
    at: Planned
    """The step that was run through its graph."""
    later: Planned
    """The eager step that was wrong by it."""
    differences: tuple[Difference, ...]
    healed: bool
    """Whether the later steps are right once they find what the graph has."""
    by: By = By.STAGING_OF_STATE
    line: Location | None = None
    """The line that does it, where it was looked for."""


def state_replaced(
    arms: Arms, plan: Sequence[Planned], horizon: int, given: Mapping[str, Tolerance]
) -> Replaced | None:
    """Does an eager step go wrong since an earlier graph step replaced state? None if that was not seen.

    Args:
        arms: after `discover_graphs`.
        plan: the steps, in order.
        horizon: how many later steps are looked at.
        given: tolerances by output path.
    """
    moves = arms.found.replaced_by_graphs
    at = min(moves.values(), key=lambda at: at.index, default=None)
    if at is None:
        return None
    names = tuple(name for name, first in moves.items() if first == at)
    trial = _Trial(arms, plan[: at.index + 1 + horizon], at, given)
    bad = trial.shown(names, By.STAGING_OF_STATE)
    if bad is None:
        return None
    healed = trial.wrong(names, By.STAGING_OF_STATE, heal=True) is None
    return Replaced(names, at, trial.steps[bad[0]], tuple(bad[1]), healed)


def bound_by_one_side(
    arms: Arms, plan: Sequence[Planned], horizon: int, given: Mapping[str, Tolerance]
) -> Replaced | None:
    """The same of all other tensors, and told only if what the graph has makes the eager steps right."""
    by_steps, others = arms.found.bound_by_steps, bound_by_staging(arms)
    for by, names, at in ((By.STAGING, others, _mover(arms, plan, others)), (By.STEP, by_steps, plan[0])):
        if not names or at is None or not _have_room(arms, names):
            continue
        trial = _Trial(arms, plan[: at.index + 1 + horizon], at, given)
        bad = trial.shown(names, by)
        if bad is None or trial.wrong(names, by, heal=True) is not None:
            continue
        guilty = list(names)
        for name in names if len(names) <= _ONE_BY_ONE else ():
            fewer = [other for other in guilty if other != name]
            if fewer and trial.wrong(fewer, by, heal=True) is None:
                guilty = fewer
        arms.subject.reset()
        arms.begin(plan)
        arms.save()
        line = binding.bound_at(arms, at, guilty[0])
        return Replaced(tuple(guilty), at, trial.steps[bad[0]], tuple(bad[1]), True, by, line)
    return None


def bound_by_staging(arms: Arms) -> list[str]:
    """Paths of tensors, other than state, that graph steps alone put others in the place of."""
    by_steps = set(arms.found.bound_by_steps)
    return [name for name in arms.found.replaced if name not in by_steps and name not in arms.found.state_paths]


def _have_room(arms: Arms, names: Sequence[str]) -> bool:
    """Whether there is memory for copies of what is written to; no finding is worth running out of it."""
    now = walk(arms.subject.roots()).paths
    return 4 * sum(now[name].nbytes for name in names if name in now) <= arms.backend.free_bytes()


def _mover(arms: Arms, plan: Sequence[Planned], names: Sequence[str]) -> Planned | None:
    """The first step whose graph step puts a tensor with other content in the place of one of the names."""
    movers: list[Planned] = []

    def lie() -> dict[str, torch.Tensor]:
        now = walk(arms.subject.roots()).paths
        return {name: now[name].detach() for name in names if name in now}

    @contextmanager
    def looked_at(at: Planned) -> Iterator[bool]:
        before = lie()
        yield True
        after = lie()
        both = [(before[name], after[name]) for name in before.keys() & after.keys()]
        if any(old.data_ptr() != new.data_ptr() and not same_bits(old, new) for old, new in both):
            movers.append(at)

    if names:
        arms.play(plan, looked_at)
    return next(iter(movers), None)


class _Trial:
    """Plays some steps in a row, eagerly but for one.

    Args:
        arms: whose.
        steps: which.
        at: the one that is run through its graph.
        given: tolerances by output path.
    """

    def __init__(self, arms: Arms, steps: Sequence[Planned], at: Planned, given: Mapping[str, Tolerance]) -> None:
        self.steps = steps
        self._arms = arms
        self._at = at
        self._given = given
        self._right: list[Result] = []

    def shown(self, names: Sequence[str], by: By) -> tuple[int, list[Difference]] | None:
        """The first step behind the graph step that is wrong, where eager steps repeat; else None.

        A graph step that is wrong by itself is for the arms to explain.
        """
        self._right = self._arms.play(self.steps, lambda _: _eagerly())
        bad = self.wrong(names, by)
        if self._first_wrong(self._arms.play(self.steps, lambda _: _eagerly())) or bad is None:
            return None
        return bad if bad[0] > self._at.index else None

    def wrong(self, names: Sequence[str], by: By, heal: bool = False) -> tuple[int, list[Difference]] | None:
        """The first step that differs by more than rounding; with `heal`, what the graph has goes where it is now."""
        undo: list[tuple[torch.Tensor, torch.Tensor]] = []
        try:
            return self._first_wrong(
                self._arms.play(
                    self.steps,
                    lambda step: self._through(names, by, heal, undo) if step == self._at else _eagerly(),
                )
            )
        finally:
            with self._arms.backend.own_memory(), torch.inference_mode():
                for tensor, content in reversed(undo):
                    tensor.copy_(content)
            self._arms.backend.synchronize()

    def _first_wrong(self, results: Sequence[Result]) -> tuple[int, list[Difference]] | None:
        pairs = zip(results, self._right, strict=True)
        gaps = ((i, compare(result.outputs, ref.outputs, self._given)) for i, (result, ref) in enumerate(pairs))
        return next(((i, gap) for i, gap in gaps if worst(gap) is Level.LARGE), None)

    @contextmanager
    def _through(
        self, names: Sequence[str], by: By, heal: bool, undo: list[tuple[torch.Tensor, torch.Tensor]]
    ) -> Iterator[bool]:
        """Run the step by its graph, which starts from the state as it is: what earlier ones did is taken back."""
        held = self._arms.subject.held(self._at)
        has = {name: tensor for one in held for name, tensor in one.paths.items()}
        reads = {**has, **{name: tensor for one in held for name, tensor in one.before.items()}}
        undo += _copy(self._arms, ((now, reads.get(name)) for name, now in self._now(names)))
        yield True
        if heal:
            undo += _copy(self._arms, ((has.get(name), now) for name, now in self._now(names)))

    def _now(self, names: Sequence[str]) -> list[tuple[str, torch.Tensor]]:
        now = walk(self._arms.subject.roots()).paths
        return [(name, now[name]) for name in names if name in now]


@contextmanager
def _eagerly() -> Iterator[bool]:
    yield False


def _copy(
    arms: Arms, pairs: Iterable[tuple[torch.Tensor | None, torch.Tensor | None]]
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Copy from first to second, of a wider first its leading part; returns what was there before."""
    before = []
    with arms.backend.own_memory(), torch.inference_mode():
        for source, target in pairs:
            part = None if source is None or target is None else corner(source, target)
            if part is not None and target is not None and part.dtype == target.dtype:
                before.append((target, target.clone()))
                target.copy_(part)
    arms.backend.synchronize()
    return before
