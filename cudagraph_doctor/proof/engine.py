"""An EngineTarget as a subject: the engine's own entry point and switch; its graphs are watched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from cudagraph_doctor import blame, contract, returned
from cudagraph_doctor.errors import Inconclusive, UsageError
from cudagraph_doctor.graph.backend import Backend, LiveGraph
from cudagraph_doctor.proof.schedule import choose, left_out, schedule_interludes
from cudagraph_doctor.proof.subject import Held, Outputs, Planned, Replaying, hold
from cudagraph_doctor.walk import walk

_ADD_RECAPTURE = "add recapture() to the target, which captures the engine's graphs anew as at start-up"


class EngineSubject:
    """Runs an EngineTarget's arms.

    Args:
        target: an EngineTarget. Graphs it captured before this object was made are named as far as they are alive.
        backend: where it runs; its hooks are in.
    """

    def __init__(self, target: Any, backend: Backend) -> None:
        self.target = target
        self.form = "engine"
        self.not_checked: list[str] = []
        self.pipelined = returned.pipelined(target)
        self.generators = returned.generators(target)
        self.untouchable = returned.untouchable(target)
        self._interludes = returned.interludes(target)
        self.to_recapture = "" if getattr(target, "recapture", None) else _ADD_RECAPTURE
        if not self.can_recapture:
            self.not_checked.append(
                "no graph could be captured anew (the target has no recapture()): what is frozen "
                "in a graph cannot be told from what staging does wrong"
            )
        self._backend = backend
        self._held: dict[int, Held] = {}
        self._replayed: dict[tuple[int, bool], set[int]] = {}
        """(position in the plan, graphs on or off) -> ordinals of the graphs that step replayed."""
        self._note(*backend.log.graphs)

    @property
    def can_recapture(self) -> bool:
        """See `Subject.can_recapture`."""
        return not self.to_recapture

    def _note(self, *graphs: LiveGraph) -> None:
        around = walk(self.roots())
        self._held |= {live.ordinal: hold(live, around.tensors, paths=around.paths) for live in graphs}

    def plan(self, steps: int, keys: Sequence[int], sizes: Sequence[int], exhaustive: bool) -> list[Planned]:
        """See `Subject.plan`. Default: the target's `batch_sizes` in an order that shrinks and grows.

        After each block comes a step with all rows: it sees what earlier ones did to the state of rows that left.
        """
        if keys:
            raise UsageError("an EngineTarget has no list of buckets", fix="choose rows with --batch-sizes instead")
        order = list(sizes)
        if not order:
            known = sorted(set(self._sizes()))
            few = choose(known, exhaustive)
            order = [n for big in reversed(few) for n in (big, _before(known, big), known[0], big, known[-1])]
            self.not_checked += left_out("batch size", known, order)
        order = [order[i % len(order)] for i in range(max(steps, len(order)))]
        between = schedule_interludes(list(self._interludes), len(order))
        return [Planned(i, i, n, returned.key(self.target, i, n), between[i]) for i, n in enumerate(order)]

    def _sizes(self) -> tuple[int, ...]:
        given = getattr(self.target, "batch_sizes", None)
        return (1, 2, 3, 4, 5, 7, 8) if given is None else contract.sizes(given, "batch_sizes")

    def reset(self) -> None:
        """See `Subject.reset`. Graphs are off then, so the switch itself is no state that moves."""
        self.target.graphs(False)
        self.target.reset()

    def _step(self, at: Planned, graphs: bool) -> Outputs:
        replayed = self._replayed.setdefault((at.index, graphs), set())
        self.target.graphs(graphs)
        if at.interlude:
            self._interludes[at.interlude]()
        with (
            self._backend.log.listening(captured=self._note, replaying=lambda live: replayed.add(live.ordinal)),
            blame.during(f"step({at.step}, {at.rows}), graphs {'on' if graphs else 'off'}"),
        ):
            return self.target.step(at.step, at.rows)

    def capture_all(self, plan: Sequence[Planned], replaying: Replaying) -> None:
        """Let the engine meet every key once: some engines record lazily."""
        seen = set()
        for at in plan:
            if at.key not in seen:
                seen.add(at.key)
                replaying(at)
                self._step(at, graphs=True)
                replaying(None)

    def eager(self, at: Planned) -> Outputs:
        """See `Subject.eager`. Raises Inconclusive if a graph was replayed although they are switched off."""
        before = self._backend.log.replays
        outputs = self._step(at, graphs=False)
        if self._backend.log.replays != before:
            raise Inconclusive(
                "the engine replayed a CUDA graph although graphs(False) had switched them off",
                fix="let graphs(on) set the switch that the engine's step really reads",
            )
        return outputs

    def replayed(self, at: Planned) -> Outputs:
        """See `Subject.replayed`."""
        return self._step(at, graphs=True)

    def fresh(self, at: Planned) -> Outputs:
        """See `Subject.fresh`: after `recapture` the engine's graphs *are* the fresh ones."""
        return self._step(at, graphs=True)

    def recapture(self, at: Planned) -> None:
        """The engine captures all its graphs anew; the old ones are gone from then on.

        Raises Inconclusive if it does not.
        """
        before = len(self._backend.log.graphs)
        self._replayed.clear()
        self.target.graphs(True)
        self.target.recapture()
        # not at the end of each capture: many an engine hangs its new buffers up only when all are captured
        self._note(*self._backend.log.graphs[before:])
        for _ in range(2):  # some record lazily
            if len(self._backend.log.graphs) == before:
                self._step(at, graphs=True)
        if len(self._backend.log.graphs) == before:
            self.to_recapture = "let recapture() drop the engine's graphs and capture them anew"
            raise Inconclusive(
                "recapture() captured nothing, so there is no graph captured now to compare with",
                fix=self.to_recapture,
            )
        self._held = {live.ordinal: self._held[live.ordinal] for live in self._backend.log.graphs[before:]}

    def drop_fresh(self) -> None:
        """Nothing to drop: the engine goes on with its new graphs."""

    def has_replayed(self, at: Planned) -> bool:
        """See `Subject.has_replayed`."""
        return bool(self._replayed.get((at.index, True)))

    def held(self, at: Planned, fresh: bool = False) -> list[Held]:
        """See `Subject.held`."""
        return [self._held[o] for o in sorted(self._replayed.get((at.index, True), ())) if o in self._held]

    def static_now(self, at: Planned, fresh: bool = False) -> Mapping[str, torch.Tensor]:
        """Nothing: the engine's buffers are found by walking."""
        return {}

    def truth(self, at: Planned) -> Mapping[str, torch.Tensor]:
        """An engine does not tell its inputs; `repair` looks among the tensors alive at the replay."""
        return {}

    def host_truth(self, at: Planned) -> Mapping[str, object]:
        """An engine does not tell them either; those that it keeps are found by walking."""
        return {}

    def roots(self) -> Mapping[str, object]:
        """See `Subject.roots`."""
        return returned.roots(self.target)

    def named(self) -> Mapping[str, torch.Tensor]:
        """Engines name by `roots` alone."""
        return {}

    def reserved(self) -> Mapping[str, Iterable[int]]:
        """See `Subject.reserved`."""
        return returned.reserved(self.target)


def _before(values: Sequence[int], value: int) -> int:
    return max((v for v in values if v < value), default=value)
