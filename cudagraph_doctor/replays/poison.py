"""Poison: which parts of its inputs does a replay follow although staging leaves them alone? A survey, no verdict.

Before the user's staging, an input is filled with a sentinel; what still holds it at the launch was left alone. Each
step is run with two sentinels: where both arrive, the buffers differ, and where they are read, the results do. That
may be right (a table that is written when it grows, a value that never changes), so nothing is accused by it. It tells
how much further the steps have to go for what was left alone to have another value; the check then plays these steps
unpoisoned, and what it shows is wrong there is a finding.

Sentinels have to be legal, as a kernel may use them as an index: see `sentinels`. Nobody undoes what a poisoned step
writes elsewhere, so a survey has a process, or a target, of its own (`examine_inputs`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from cudagraph_doctor.errors import Inconclusive, UsageError
from cudagraph_doctor.graph.backend import Backend, LiveGraph
from cudagraph_doctor.progress import Progress
from cudagraph_doctor.proof.arms import Arm, Arms, Result, overlaps
from cudagraph_doctor.proof.compare import compare
from cudagraph_doctor.proof.engine import EngineSubject
from cudagraph_doctor.proof.loop import LoopSubject
from cudagraph_doctor.proof.scene import Scene, look
from cudagraph_doctor.proof.start import discover, planned, subject_of
from cudagraph_doctor.proof.state_changes import same_state
from cudagraph_doctor.proof.subject import Planned, Subject
from cudagraph_doctor.replays.surveyed import LeftAlone, Surveyed
from cudagraph_doctor.settings import Settings

_RUNS = 12
"""Runs of a step, for the estimate: two for each of some inputs."""
_TRIES = 4
"""Steps after which a tensor that none of them wrote is taken for a table, where the target names no inputs."""
_FURTHER = (2, 4, 8)
"""How many times as many steps are looked at for a value that the asked ones do not have."""
_UNTOLD = 4
"""How many times as many are played where nobody tells values beforehand."""

Number = bool | int | float


def refuse_peers(subject: Subject) -> None:
    """Raise UsageError where others may read what is poisoned: memory shared with peers, several ranks."""
    distributed = torch.distributed
    ranks = distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1
    if subject.untouchable or ranks > 1:
        shared = f"untouchable() names {len(subject.untouchable)} tensors" if subject.untouchable else f"{ranks} ranks"
        raise UsageError(
            "--poison is refused: this target shares memory with peers, which would read the poison.",
            seen=shared,
            fix="Leave --poison out, or run it on one rank that shares no memory (IPC, symmetric memory).",
        )


def sentinels(values: Sequence[torch.Tensor]) -> tuple[Number, Number] | None:
    """Two different values that a kernel can work with in the place of these; None if nothing is known to be legal.

    Integers may be an index, a slot, a length or a count: the two smallest are taken that a step has, but none below
    zero, as these stand for "nothing" and are read by padding alone. What is smaller than a legal one and not negative
    is within the same bounds, so one value is enough, unless it is 0. Floats are finite: the bounds of what steps have.

    Args:
        values: of one input, as steps have them.
    """
    held = [value.reshape(-1) for value in values if value.numel()]
    if not held or held[0].dtype.is_complex:
        return None
    if held[0].dtype is torch.bool:
        return False, True
    if held[0].dtype.is_floating_point:
        every = torch.cat([value.float() for value in held])
        finite = every[every.isfinite()]
        if not len(finite):
            return None
        low, high = float(finite.min()), float(finite.max())
        return (low, high) if low < high else (low, low / 2 if low else 1.0)
    known = torch.cat(held).unique().tolist()
    legal = [number for number in known if number >= 0] or known
    if len(legal) > 1:
        return legal[0], legal[1]
    return (legal[0], legal[0] - 1) if legal[0] > 0 else None


@dataclass(frozen=True, slots=True)
class _Ran:
    """One poisoned run."""

    result: Result
    launched_with: torch.Tensor
    """What the input held at the first launch."""


class Survey:
    """Poisons the inputs of one subject, one at a time.

    Args:
        arms: after `discover_graphs`.
        plan: the steps that a graph serves.
    """

    def __init__(self, arms: Arms, plan: Sequence[Planned]) -> None:
        self._poisoned: set[str] = set()
        self.not_poisoned: dict[str, str] = {}
        """Input -> why not."""
        self._arms = arms
        self._plan = plan
        self._named = arms.subject.form == "loop"
        self._held: dict[str, list[torch.Tensor]] = {}
        self._left: dict[str, LeftAlone] = {}
        self._written: set[str] = set()
        """What staging writes at some step. That makes an input of what runners and engines have."""
        self._tried: Counter[str] = Counter()

    @property
    def found(self) -> dict[str, LeftAlone]:
        """By input: the first step at which some of it was left alone and followed."""
        return {name: left for name, left in self._left.items() if self._is_input(name)}

    @property
    def inputs(self) -> tuple[str, ...]:
        """Those that were poisoned."""
        return tuple(sorted(filter(self._is_input, self._poisoned)))

    def _is_input(self, name: str) -> bool:
        return self._named or name in self._written

    def run(self, progress: Progress) -> None:
        """Poison each input at each step, until it is known to be left alone."""
        arms = self._arms
        inputs: dict[int, dict[str, torch.Tensor]] = {}
        arms.begin(self._plan)
        for at in self._plan:
            arms.save()
            eager = arms.run(Arm.EAGER, at)
            scene = look(arms, at)
            inputs[at.index] = self._inputs(scene)
            self._note_values(at, scene)
            arms.commit(at, eager)
        arms.begin(self._plan)
        for at in self._plan:
            progress.advance(f"step {at.step}, {at.in_rows}, graph {at.key}")
            arms.save()
            eager = arms.run(Arm.EAGER, at)
            for name, buffer in inputs[at.index].items():
                known = name in self.found or name in self.not_poisoned
                if not known and (self._is_input(name) or self._tried[name] < _TRIES):
                    self._poison(at, name, buffer)
            arms.commit(at, eager)

    def _note_values(self, at: Planned, scene: Scene) -> None:
        """What steps have for each input: the truth where it is told, else what the input held."""
        truth = self._arms.truth(at)
        for name in self._inputs(scene):
            self._held.setdefault(name, []).append(truth.get(name, scene.contents[name]).cpu())

    def _inputs(self, scene: Scene) -> dict[str, torch.Tensor]:
        """The static inputs; of runners and engines, who do not name them, all small tensors but weights and state."""
        inputs = {
            name: tensor
            for name, tensor in scene.captured.items()
            if name in (scene.contents.keys() & scene.inputs if self._named else scene.contents)
            and not any(overlaps(tensor, extent) for extent in self._arms.found.state)
        }
        dtypes: dict[int, set[torch.dtype]] = {}
        for tensor in inputs.values():
            dtypes.setdefault(tensor.untyped_storage().data_ptr(), set()).add(tensor.dtype)
        for name, tensor in inputs.items():
            if len(dtypes[tensor.untyped_storage().data_ptr()]) > 1:  # as another dtype, a legal float is any integer
                self.not_poisoned[name] = "it shares memory with one of another dtype"
            elif 0 in tensor.stride():
                self.not_poisoned[name] = "its elements share memory"
        return {name: tensor for name, tensor in inputs.items() if name not in self.not_poisoned}

    def _poison(self, at: Planned, name: str, buffer: torch.Tensor) -> None:
        both = sentinels(self._held[name])
        if both is None:
            self.not_poisoned[name] = "no other value of it is known to be legal"
            return
        try:
            one, other = (self._run(at, buffer, value) for value in both)
            if one is None or other is None:
                return
            self._poisoned.add(name)
            self._tried[name] += 1
            with self._arms.backend.own_memory():
                left = _unlike(one.launched_with, other.launched_with).cpu()
            arrived = int(left.sum())
            if arrived < buffer.numel():
                self._written.add(name)
            # what padding rows write into their own state is nobody's business
            padding = left.dim() > 0 and not bool(left[: at.rows].any())
            if not arrived or not _differ(one.result, other.result, with_state=not padding):
                return
            again = self._run(at, buffer, both[0])
        except Exception as error:
            if "CUDA error" in str(error):  # the device is gone
                raise
            self.not_poisoned[name] = f"a step that follows it raised {type(error).__name__}"
            return
        if again is not None and not _differ(again.result, one.result, with_state=not padding):
            self._left[name] = LeftAlone(name, at.step, at.rows, str(at.key), arrived, buffer.numel())

    def _run(self, at: Planned, buffer: torch.Tensor, value: Number) -> _Ran | None:
        """The step by its graph, with the poisoned input; None if it replayed none."""
        arms = self._arms
        seen: list[torch.Tensor] = []

        def note(_live: LiveGraph) -> None:
            if not seen:
                with arms.backend.own_memory(), torch.no_grad():
                    seen.append(buffer.clone())

        with arms.backend.log.listening(replaying=note):
            result = arms.run(Arm.REPLAYED, at, around=_filled(arms.backend, buffer, value))
        return _Ran(result, seen[0]) if seen else None


@contextmanager
def _filled(backend: Backend, buffer: torch.Tensor, value: Number) -> Iterator[None]:
    """Staging finds the sentinel all over the buffer; what it leaves of that is put back after."""
    # engines capture in inference mode; their buffers may only be written in it
    with backend.own_memory(), torch.inference_mode():
        before = buffer.clone()
        poison = torch.full(buffer.shape, value, device=buffer.device).to(buffer.dtype)
        buffer.copy_(poison)
    backend.synchronize()  # an engine may stage on a stream of its own
    try:
        yield
    finally:
        backend.synchronize()
        with backend.own_memory(), torch.inference_mode():
            buffer.copy_(torch.where(_unlike(buffer, poison), buffer, before))


def _unlike(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """For each element, whether its bits differ: NaN is like itself."""
    size = a.element_size()
    one, other = (t.contiguous().reshape(-1).view(torch.uint8).view(-1, size) for t in (a, b))
    return (one != other).any(1).view(a.shape)


def _differ(a: Result, b: Result, with_state: bool) -> bool:
    return bool(compare(a.outputs, b.outputs)) or (with_state and not same_state(a.state, b.state))


def steps_wanted(subject: LoopSubject | EngineSubject, settings: Settings, found: Mapping[str, LeftAlone]) -> int:
    """Steps to play unpoisoned: so many that what was left alone has values that the asked steps do not have.

    An engine does not tell its values beforehand, a runner not which of them are in which of its tensors.
    """
    if not found:
        return settings.steps
    if isinstance(subject, EngineSubject) or subject.form != "loop":
        return settings.steps * _UNTOLD
    values = {name: _values(subject, _plan(subject, settings), name) for name in found}
    wanted = settings.steps
    for times in _FURTHER:
        longer = replace(settings, steps=settings.steps * times)
        try:
            new = [name for name in values if _values(subject, _plan(subject, longer), name) - values[name]]
        except Inconclusive:  # next_inputs does not go so far
            break
        if new or times == _FURTHER[0]:
            wanted = longer.steps
        for name in new:
            del values[name]
    return wanted


def _plan(subject: LoopSubject, settings: Settings) -> list[Planned]:
    return subject.plan(settings.steps, settings.buckets, settings.batch_sizes, settings.exhaustive)


def _values(subject: LoopSubject, plan: Sequence[Planned], name: str) -> set[Any]:
    """The numbers that an input has at some step."""
    truths = (subject.truth(at).get(name) for at in plan if at.rows)
    return {number for truth in truths if truth is not None for number in truth.reshape(-1).tolist()}


@torch.no_grad()
def survey(target: object, backend: Backend, settings: Settings, progress: Progress) -> Surveyed:
    """Poison a target's inputs.

    Args:
        target: a LoopTarget or an EngineTarget, not to be used for anything else afterwards.
        backend: its hooks are in.
        settings: the steps that are asked for.
        progress: told what is done. No suspicion is left there: a poisoned replay that fails is nobody's fault.

    Raises:
        UsageError: memory is shared with peers; a tolerance is given for an output that there is not.
        DoctorError: the target does not keep the contract, or cannot be captured.
    """
    subject = subject_of(target, backend)
    refuse_peers(subject)
    _, served = planned(subject, settings)
    arms = Arms(subject, backend)
    discover(arms, served, progress, _RUNS, settings.tolerances)
    progress.stage("poisoned inputs", len(served))
    seen = Survey(arms, served)
    seen.run(progress)
    return Surveyed(
        steps_wanted(subject, settings, seen.found),
        seen.inputs,
        tuple(seen.found.values()),
        {name: why for name, why in seen.not_poisoned.items() if name in seen.inputs or subject.form == "loop"},
    )
