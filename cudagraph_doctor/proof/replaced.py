"""State that a graph step puts another tensor in the place of: its graph keeps the old one, all else takes the new.

Memory is put back between arms by address, so no arm shows it rightly. Shown instead by playing steps in a row: one
through its graph, the later ones eagerly, as a prefill or a fallback would.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from cudagraph_doctor.proof.arms import Arms, Result
from cudagraph_doctor.proof.compare import Difference, Level, compare, worst
from cudagraph_doctor.proof.subject import Planned
from cudagraph_doctor.settings import Tolerance
from cudagraph_doctor.walk import walk


@dataclass(frozen=True, slots=True)
class Replaced:
    """State that was put in another's place, and what came of it."""

    names: tuple[str, ...]
    at: Planned
    """The step whose staging did it."""
    later: Planned
    """The eager step that was wrong by it."""
    differences: tuple[Difference, ...]
    healed: bool
    """Whether the later steps are right once they find what the graph wrote."""


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
    steps = plan[: at.index + 1 + horizon]

    def wrong(results: Sequence[Result]) -> tuple[int, list[Difference]] | None:
        """The first step that differs from eager by more than rounding."""
        pairs = zip(results, right, strict=True)
        gaps = ((i, compare(result.outputs, ref.outputs, given)) for i, (result, ref) in enumerate(pairs))
        return next(((i, gap) for i, gap in gaps if worst(gap) is Level.LARGE), None)

    right = arms.play(steps, lambda _: _eagerly())
    bad = wrong(arms.play(steps, lambda step: _through(arms, step, names, heal=False) if step == at else _eagerly()))
    if wrong(arms.play(steps, lambda _: _eagerly())) or bad is None or bad[0] <= at.index:
        return None  # a graph step that is wrong by itself is for the arms to explain
    healed = wrong(arms.play(steps, lambda step: _through(arms, step, names, heal=True) if step == at else _eagerly()))
    return Replaced(names, at, steps[bad[0]], tuple(bad[1]), healed is None)


@contextmanager
def _eagerly() -> Iterator[bool]:
    yield False


@contextmanager
def _through(arms: Arms, at: Planned, names: Sequence[str], heal: bool) -> Iterator[bool]:
    """Run the step by its graph, which starts from the state as it is; with `heal`, what it wrote goes where it is now.

    The copy before the replay takes back what earlier graph steps did, so that this one is seen alone.
    """
    captured = {name: tensor for held in arms.subject.held(at) for name, tensor in held.paths.items()}
    _copy(arms, names, captured, into_captured=True)
    yield True
    if heal:
        _copy(arms, names, captured, into_captured=False)


def _copy(arms: Arms, names: Sequence[str], captured: Mapping[str, torch.Tensor], into_captured: bool) -> None:
    now = walk(arms.subject.roots()).paths
    with arms.backend.own_memory(), torch.inference_mode():
        for name in names:
            old, new = captured.get(name), now.get(name)
            if old is not None and new is not None and old.shape == new.shape:
                source, target = (new, old) if into_captured else (old, new)
                target.copy_(source)
    arms.backend.synchronize()
