"""Run one step several ways from one saved state, and measure what came out: outputs, and state byte for byte.

Order of use: `discover` (what is state? does reset() restore it? does the host move?), `capture_all`,
`discover_graphs`, `begin`, then per step `save`, `run` as often as wanted, `commit`. Every run starts from the saved
state, so a run can be repeated as its own control.
"""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import torch

from cudagraph_doctor import tree
from cudagraph_doctor.graph.backend import Backend, Block, LiveGraph
from cudagraph_doctor.proof.extent import Extent
from cudagraph_doctor.proof.packed import Packed
from cudagraph_doctor.proof.state import Memory, Snapshot
from cudagraph_doctor.proof.state_changes import Changes
from cudagraph_doctor.proof.subject import Planned, Replaying, Subject
from cudagraph_doctor.rewalk import Rewalk
from cudagraph_doctor.walk import Walk, walk

UNNAMED = "unnamed memory"
"""Memory that no tensor of the target's objects lies in. Addresses of temporaries come back, so it proves little."""

_TENSOR = "tensor "
"""What the paths of tensors start with among those of host values."""
_LARGE = 1 << 20
"""Bytes: blocks above this are weights, caches and the like, and looking at them takes time."""


class Arm(StrEnum):
    """The ways to run a step."""

    EAGER = "eager"
    REPLAYED = "replayed"
    FRESH = "fresh"
    PADDED = "padded"
    """Eager on the static inputs of the fresh graph (a LoopTarget's)."""
    WIDENED = "widened"
    """Eager at the graph's batch size: the true values, with the first live row again in the rows behind them (a
    LoopTarget's). Nothing of the user's staging is in it."""


@dataclass(slots=True)
class Result:
    """What one run of one step left behind."""

    arm: Arm
    outputs: dict[str, Any]
    """Leaves by path; tensors are copies."""
    state: Mapping[Extent, torch.Tensor]
    """Bytes of the state after the run."""


@dataclass(slots=True)
class Discovery:
    """What the trial passes over the plan found."""

    state: set[Extent] = field(default_factory=set)
    """Written by eager steps: compared between arms."""
    touched: set[Extent] = field(default_factory=set)
    """Written by graph steps only (staging buffers, workspaces): put back between arms, never compared."""
    host_moves: list[str] = field(default_factory=list)
    """Paths of host values that a step changes and reset() restores: such steps are reached by reset and replay."""
    unrestored: list[str] = field(default_factory=list)
    """Host values, or "device memory ...", that reset() does not bring back."""
    state_paths: list[str] = field(default_factory=list)
    """Where in the target's objects state lies, of what eager steps leave in its place."""
    replaced_by_reset: list[str] = field(default_factory=list)
    """Paths of state that is another tensor after reset()."""
    replaced: dict[str, int] = field(default_factory=dict)
    """Path of any tensor -> after how many steps of a pass another one was in its place, by the pass with most."""
    replaced_by_graphs: dict[str, Planned] = field(default_factory=dict)
    """Paths of state that is another tensor after a graph step, with the first step after which it was."""
    graphs: dict[int, frozenset[int]] = field(default_factory=dict)
    """Position of a step in the plan -> ordinals of the graphs that it replayed: several keys may share one."""
    walked_all: bool = True
    step_seconds: float = 0.0
    """Time of an eager step, once warm."""

    @property
    def bound_by_steps(self) -> list[str]:
        """Paths of tensors that eager steps put others in the place of."""
        return [path.removeprefix(_TENSOR) for path in self.host_moves if path.startswith(_TENSOR)]

    @property
    def graphs_replayed(self) -> int:
        """How many graphs the steps of the plan replayed."""
        return len(frozenset().union(*self.graphs.values()))


class Arms:
    """Runs the arms of a subject.

    Args:
        subject: the target.
        backend: where it runs.
        replaying: should the process or the device be lost, what it was told last was when.
    """

    def __init__(self, subject: Subject, backend: Backend, replaying: Replaying = lambda _at: None) -> None:
        self.subject = subject
        self.backend = backend
        self.memory = Memory(backend, subject.generators, subject.untouchable)
        self.found = Discovery()
        self._history: list[Planned] = []
        self._plan: list[Planned] = []
        self._saved: Snapshot | None = None
        self._weights: set[int] = set()
        """Addresses of the storages of parameters."""
        self._replaying = replaying
        self._walk = Rewalk()
        self.runs = 0

    # what is state

    def discover(self, plan: Sequence[Planned], first: Callable[[Any], object] = lambda _outputs: None) -> Discovery:
        """Play the plan eagerly from reset, twice, and note what it changes and whether reset() brings it back.

        State is memory that is there all the time. What a step allocates anew and hangs into an object moves that
        object: such a target is rewound by reset and replay, as one whose counters move.

        Args:
            plan: the steps.
            first: told what the first one puts out, before anything else is run.
        """
        subject, found = self.subject, self.found
        named = self._walk(subject.roots()).tensors.values()
        self._weights = {t.untyped_storage().data_ptr() for t in named if isinstance(t, torch.nn.Parameter)}
        subject.reset()
        start = self._host()
        # the first pass also allocates what is allocated lazily, so the second one starts with all memory in place
        for number, at in enumerate(plan):
            outputs = subject.eager(at)
            if number == 0:
                first(outputs)
            del outputs
        subject.reset()
        host = self._host()
        # what is made on first use (a cache that was None) is gone from the host values: that is no leftover
        found.unrestored += [path for path in start if path in host and start[path] != host[path]]
        looks, random = [self._first_look()], self.memory.random_state()
        moved: Counter[str] = Counter()
        for at in plan:
            started = time.perf_counter()
            subject.eager(at)
            self.backend.synchronize()
            found.step_seconds += (time.perf_counter() - started) / len(plan)
            now = self._host(tensors=True)
            moved.update(path for path in now if host.get(path, now[path]) != now[path])
            host = now
            self._look_after(at, plan, looks)
        found.host_moves = list(moved)
        self._note_replaced({path: moved[_TENSOR + path] for path in found.bound_by_steps})
        found.state = self.memory.changed_between(looks)
        self.memory.set_random_state(random)
        state, lay = self.memory.merged(found.state), self._lie()
        found.state_paths = [
            path
            for path, extent in lay.items()
            if _TENSOR + path not in moved and any(extent.meets(some) for some in state)
        ]
        subject.reset()
        found.replaced_by_reset = self._replaced(lay, self._lie())
        left = self.memory.changed_between([looks[0], self._look()]) & found.state
        found.unrestored += [f"device memory of {name}" for name in self.names_of(left) if name != UNNAMED]
        return found

    def capture_all(self, plan: Sequence[Planned]) -> None:
        """Have every graph of the plan captured."""

        def replaying(at: Planned | None) -> None:
            if at is None:
                self.backend.synchronize()
            self._replaying(at)

        self.subject.capture_all(plan, replaying)

    def discover_graphs(self, plan: Sequence[Planned]) -> None:
        """Play the plan through the graphs; what only they touch is put back between arms as well.

        Static inputs that every run stages anew (a LoopTarget's) are left alone: what earlier steps left in their tails
        is history that must stay.
        """
        self.subject.reset()
        looks, replaced = [self._first_look()], self.found.replaced_by_graphs
        moved: Counter[str] = Counter()
        for at in plan:
            if at.key is not None:
                lay = self._lie()
                self._replaying(at)
                launched: list[LiveGraph] = []
                with self.backend.log.listening(replaying=launched.append):
                    self.subject.replayed(at)
                self.found.graphs[at.index] = frozenset(live.ordinal for live in launched)
                launched.clear()
                self.backend.synchronize()
                self._replaying(None)
                self._look_after(at, plan, looks)
                after = self._lie()
                moved.update(path for path in after if path in lay and lay[path].address != after[path].address)
                replaced |= {name: at for name in self._replaced(lay, after) if name not in replaced}
        self._note_replaced(moved)
        changed = self.memory.changed_between(looks) - self.found.state
        staged = [
            t for at in plan for held in self.subject.held(at) for p, t in held.tensors.items() if p in held.inputs
        ]
        self.found.touched |= {extent for extent in changed if not any(overlaps(tensor, extent) for tensor in staged)}
        self.found.touched = self.memory.merged(self.found.touched)
        self.found.state = self.memory.merged(self.found.state)
        self.subject.reset()

    def _lie(self) -> dict[str, Extent]:
        """Where the tensors of the target's objects lie, by path. They are not held: addresses come back by right."""
        return {path: Extent(*span(tensor)) for path, tensor in self._walk(self.subject.roots()).paths.items()}

    def _replaced(self, before: Mapping[str, Extent], after: Mapping[str, Extent]) -> list[str]:
        """Paths of state at which another tensor is after than before."""
        common = before.keys() & after.keys()
        return [p for p in self.found.state_paths if p in common and before[p].address != after[p].address]

    def _note_replaced(self, times: Mapping[str, int]) -> None:
        most = self.found.replaced
        most |= {path: max(n, most.get(path, 0)) for path, n in times.items()}

    def _first_look(self) -> dict[Block, torch.Tensor]:
        """Without garbage: memory that only waits for the collector would pass for lasting, and be put back over
        whoever gets its address.
        """
        gc.collect()
        return self._look()

    def _look(self, before: Mapping[Block, torch.Tensor] | None = None) -> dict[Block, torch.Tensor]:
        """Fingerprints as of now; of weights and large blocks, those of the look `before`, if that is given."""
        self.backend.synchronize()
        self.memory.refresh()
        known = {
            block: marks
            for block, marks in (before or {}).items()
            if block.bytes > _LARGE or block.address in self._weights
        }
        return self.memory.fingerprint(known)

    def _look_after(self, at: Planned, plan: Sequence[Planned], looks: list[dict[Block, torch.Tensor]]) -> None:
        """Look after step `at`. What goes round may be at the end where it was: so after each step, but at weights and
        large blocks, which cost time, after the first and the last alone.
        """
        looks.append(self._look(None if at in (plan[0], plan[-1]) else looks[-1]))

    def _host(self, tensors: bool = False) -> dict[str, Any]:
        """Host values by path; with `tensors`, also which memory each tensor's name belongs to."""
        seen = walk(self.subject.roots())
        self.found.walked_all &= seen.complete
        values = {path: value for path, value in seen.scalars.items() if value == value}
        if tensors:
            values |= {_TENSOR + path: tensor.data_ptr() for path, tensor in seen.paths.items()}
        return values

    # one step

    def begin(self, plan: Sequence[Planned]) -> None:
        """Go to before the first step of the plan."""
        self.subject.reset()
        self._plan = list(plan)
        self._history.clear()

    def save(self) -> None:
        """The state that all arms of the next step start from."""
        self.backend.synchronize()
        self.memory.refresh()
        self._saved = None  # one snapshot at a time
        self._saved = self.memory.save(self.found.state | self.found.touched)

    @property
    def beyond(self) -> int:
        """The step behind the plan."""
        return 1 + max(at.step for at in self._plan)

    @property
    def saved(self) -> Snapshot:
        """The state of `save`."""
        assert self._saved is not None, "save() comes first"
        return self._saved

    def rewind(self) -> None:
        """Back to the saved state; host values too, by reset and replay of the steps so far, where steps move them."""
        if self.found.host_moves:
            self.subject.reset()
            for earlier in self._history:
                self.subject.eager(earlier)
        self.memory.restore(self.saved)

    def run(
        self,
        arm: Arm,
        at: Planned,
        around: AbstractContextManager[Any] | None = None,
    ) -> Result:
        """Run one arm from the saved state.

        Args:
            arm: which.
            at: the step.
            around: entered for the run and the measurement (a patched graph, a listener that writes bytes before the
                replay): what it puts back at its end is not yet put back in the result.
        """
        self.rewind()
        step: Callable[[Planned], Any] = getattr(self.subject, arm.value)
        self.runs += 1
        with around or nullcontext():
            if arm in (Arm.REPLAYED, Arm.FRESH):
                self._replaying(at)
            result = self._measure(arm, step(at))
        if arm is not Arm.EAGER:
            self._replaying(None)
        return result

    def _measure(self, arm: Arm, outputs: Any) -> Result:
        with self.backend.own_memory():
            leaves = tree.copies(outputs)
        del outputs
        self.backend.synchronize()
        base = Packed({}) if self._saved is None else self._saved.memory
        return Result(arm, leaves, Changes(self.memory, self.found.state, base))

    def truth(self, at: Planned) -> dict[str, torch.Tensor]:
        """The step's true values, in memory of ours: no rewind writes over them."""
        values = self.subject.truth(at)
        with self.backend.own_memory():
            return {path: value.clone() for path, value in values.items()}

    def go_on(self, at: Planned, state: Mapping[Extent, torch.Tensor], horizon: int) -> list[Result]:
        """Take `state` as the state after step `at`, and run the next steps of the plan eagerly from there."""
        self.rewind()
        if self.found.host_moves:
            self.subject.eager(at)
        self.memory.put_back(state)
        self.memory.set_random_state(self.saved.random)
        results = []
        for later in self._plan[at.index + 1 : at.index + 1 + horizon]:
            self.runs += 1
            results.append(self._measure(Arm.EAGER, self.subject.eager(later)))
        return results

    def commit(self, at: Planned, result: Result) -> None:
        """Take `result`'s state as the truth after this step. Staging buffers keep what the last arm staged."""
        if self.found.host_moves:
            touched = self.memory.save(self.found.touched)
            self.rewind()
            self.subject.eager(at)
            self.memory.restore(touched, random=False)
        self.memory.put_back(result.state)
        self._history.append(at)

    def play(self, steps: Sequence[Planned], around: Callable[[Planned], AbstractContextManager[bool]]) -> list[Result]:
        """From reset, the steps in a row.

        Args:
            steps: which.
            around: entered for each step; yields whether it is run through its graph.
        """
        self.subject.reset()
        results = []
        for at in steps:
            self.runs += 1
            with around(at) as by_graph:
                if by_graph:
                    self._replaying(at)
                arm = Arm.REPLAYED if by_graph else Arm.EAGER
                results.append(self._measure(arm, (self.subject.replayed if by_graph else self.subject.eager)(at)))
                self._replaying(None)
        return results

    # names

    def look_around(self) -> Walk:
        """Names as they are now: the target's own first, then attribute paths."""
        seen = self._walk(self.subject.roots())
        given = dict(self.subject.named())
        same = {(tensor.data_ptr(), tensor.shape): name for name, tensor in given.items()}
        addresses = {address for address, _ in same}
        for name, tensor in list(seen.tensors.items()):
            address = tensor.data_ptr()
            told = same.get((address, tensor.shape), name) if address in addresses else name
            if told != name:
                seen.aliases[name] = told
                del seen.tensors[name]
        seen.tensors = given | seen.tensors
        return seen

    def names_of(self, extents: set[Extent]) -> list[str]:
        """Names of the tensors that the extents overlap; "unnamed memory" for the rest."""
        tensors = self.look_around().tensors
        names: dict[str, None] = {}
        for extent in sorted(extents):
            hits = [name for name, tensor in tensors.items() if overlaps(tensor, extent)]
            names |= dict.fromkeys(hits[-1:] or [UNNAMED])
        return list(names)


def span(tensor: torch.Tensor) -> tuple[int, int]:
    """First address and number of bytes of the tensor's elements (its storage's stretch, for strided ones)."""
    if not tensor.numel():
        return tensor.data_ptr(), 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), (last + 1) * tensor.element_size()


def overlaps(tensor: torch.Tensor, extent: Extent) -> bool:
    """Whether some of the tensor's bytes lie in the extent."""
    return extent.meets(Extent(*span(tensor)))
