"""A LoopTarget whose own runner (`graphed()`) captures and replays: it is watched, not played."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from cudagraph_doctor import blame
from cudagraph_doctor.errors import Inconclusive, TargetError
from cudagraph_doctor.graph.backend import Backend, LiveGraph
from cudagraph_doctor.proof.loop import LoopSubject
from cudagraph_doctor.proof.subject import Held, Outputs, Planned, Replaying, hold
from cudagraph_doctor.walk import walk

Runner = Callable[[Any], Any]


class RunnerSubject(LoopSubject):
    """Runs the arms of a LoopTarget with `graphed()`. The fresh arm is a second runner."""

    def __init__(self, target: Any, backend: Backend) -> None:
        super().__init__(target, backend)
        self.form = "loop with its own runner"
        self._runner: Runner | None = None
        self._fresh_runner: Runner | None = None
        self._current: Runner | None = None
        """The runner whose tensors names stand for: the one that ran last."""
        self._held: dict[int, Held] = {}
        """By ordinal of the graph."""
        self._replayed: dict[tuple[int, bool], set[int]] = {}
        """(position in the plan, fresh or not) -> ordinals of the graphs that step replayed."""

    def _make(self) -> Runner:
        """A new runner, with what its graphs had around them: while it is made, nobody knows its buffers yet."""
        captured: list[LiveGraph] = []
        with self._backend.log.listening(captured=captured.append):
            runner: Runner = self.target.graphed()
        if not callable(runner):
            raise TargetError(
                f"graphed() returned a {type(runner).__name__}, which cannot be called",
                fix="let graphed() return the function that takes what next_inputs returns and replays",
            )
        self._current = runner
        for live in captured:
            self._note(live)
        return runner

    def _note(self, live: LiveGraph) -> None:
        seen = walk(self.roots())
        around = {**seen.tensors, **self.named()}
        # what only the runner holds is its own, as static inputs are: a second runner has others by right
        own = [name for name in around if name.startswith("runner.")]
        self._held[live.ordinal] = hold(live, around, own, seen.paths)

    def capture_all(self, plan: Sequence[Planned], replaying: Replaying) -> None:
        """Make the runner and let it meet every bucket twice, at a step outside the plan: some record lazily."""
        beyond = 1 + max(at.step for at in plan)
        self._runner = runner = self._make()
        with self._backend.log.listening(captured=self._note):
            buckets: list[Any] = sorted({at.key for at in plan if at.key is not None}, reverse=True)
            for bucket in buckets:
                replaying(Planned(len(plan), beyond, bucket, bucket))
                for _ in range(2):
                    runner(self._fresh_inputs(beyond, bucket))
                replaying(None)

    def recapture(self, at: Planned) -> None:
        """See `Subject.recapture`. Raises Inconclusive if a new runner captures nothing."""
        before = len(self._backend.log.graphs)
        self._forget_fresh()
        self._fresh_runner = runner = self._make()
        with self._backend.log.listening(captured=self._note):
            runner(self._fresh_inputs(at.step, at.rows))
        if len(self._backend.log.graphs) == before:
            self._fresh_runner = None
            self.to_recapture = "let graphed() return a new runner with graphs of its own each time"
            raise Inconclusive(
                "a second call of graphed() captured nothing, so there is no graph captured now to compare with",
                fix=self.to_recapture,
            )

    def drop_fresh(self) -> None:
        """See `Subject.drop_fresh`."""
        self._fresh_runner = None
        self._current = self._runner
        self._forget_fresh()

    def _forget_fresh(self) -> None:
        """What fresh graphs replayed: they go with their runner."""
        self._replayed = {key: seen for key, seen in self._replayed.items() if not key[1]}

    def replayed(self, at: Planned) -> Outputs:
        """See `Subject.replayed`."""
        assert self._runner is not None
        return self._call(self._runner, at, fresh=False)

    def fresh(self, at: Planned) -> Outputs:
        """See `Subject.fresh`."""
        assert self._fresh_runner is not None
        return self._call(self._fresh_runner, at, fresh=True)

    def _call(self, runner: Runner, at: Planned, fresh: bool) -> Outputs:
        self._current = runner
        replayed = self._replayed.setdefault((at.index, fresh), set())
        inputs = self._fresh_inputs(at.step, at.rows)
        with self._backend.log.listening(self._note, lambda live: replayed.add(live.ordinal)):
            with blame.during(f"the runner's step {at.step} with {at.in_rows}"):
                outputs = runner(inputs)
            return self._live_rows(outputs, at)

    def has_replayed(self, at: Planned) -> bool:
        """See `Subject.has_replayed`."""
        return bool(self._replayed.get((at.index, False)))

    def held(self, at: Planned, fresh: bool = False) -> list[Held]:
        """See `Subject.held`."""
        return [self._held[o] for o in sorted(self._replayed.get((at.index, fresh), ())) if o in self._held]

    def static_now(self, at: Planned, fresh: bool = False) -> Mapping[str, torch.Tensor]:
        """Nothing: its static inputs are the runner's own affair, found by walking like everything else of it."""
        return {}

    def roots(self) -> Mapping[str, object]:
        """See `Subject.roots`."""
        roots: dict[str, object] = {"": self.target}
        if self._current is not None:
            roots["runner"] = self._current
        return roots
