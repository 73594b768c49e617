"""Has a target run its capturing code, once and from the start, as often as it is asked to.

For a loop the doctor plays the runner, as `proof.loop` does, but captures in the mode that is torch's default. For a
loop with a runner of its own and for an engine it is their code that captures, on their values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch

from cudagraph_doctor import contract
from cudagraph_doctor.errors import DoctorError, Inconclusive
from cudagraph_doctor.graph.backend import Backend
from cudagraph_doctor.proof.engine import EngineSubject
from cudagraph_doctor.proof.loop import LoopSubject
from cudagraph_doctor.proof.runner import RunnerSubject
from cudagraph_doctor.proof.subject import Planned
from cudagraph_doctor.settings import Settings

ERROR_MODE = "global"
"""torch's default for captures."""


class Player(Protocol):
    """A target, ready to capture."""

    form: str
    """"loop", "loop with its own runner", "engine"."""
    error_mode: str
    """The capture error mode of captures that the doctor makes itself; "" where the target chooses."""
    generators: tuple[torch.Generator, ...]

    def capture(self) -> None:
        """Run the capturing code from the target's beginning. Raises what it raises."""

    def roots(self) -> Mapping[str, object]:
        """Where to look for modules and host values."""

    def eager_step(self, step: int) -> None:
        """Run a step eagerly, after `capture`."""

    def serve(self, step: int) -> None:
        """Run a step by graph, after `capture`."""


def player_of(
    target: Any, backend: Backend, settings: Settings, load: Callable[[], Any], opened: Callable[[], int]
) -> Player:
    """The player of a target.

    Args:
        target: a LoopTarget or an EngineTarget.
        backend: its hooks are in.
        settings: which buckets, or which batch sizes.
        load: makes the target anew.
        opened: how many captures were begun in this run so far.
    """
    if contract.check(target) == "engine":
        return EnginePlayer(target, backend, settings, load, opened)
    if contract.has(target, "graphed"):
        return RunnerPlayer(target, backend, settings)
    return LoopPlayer(target, backend, settings)


def _with_graphs(plan: list[Planned]) -> list[Planned]:
    """The first step of each key."""
    first = {at.key: at for at in reversed(plan) if at.key is not None and at.rows > 0}
    if not first:
        raise Inconclusive(
            "no step of the plan is served by a graph",
            seen=f"batch sizes {sorted({at.rows for at in plan})}",
            fix="choose other --batch-sizes",
        )
    return sorted(first.values(), key=lambda at: at.index)


class LoopPlayer(LoopSubject):
    """Stages, warms up and captures each bucket, largest first."""

    error_mode = ERROR_MODE

    def __init__(self, target: Any, backend: Backend, settings: Settings) -> None:
        super().__init__(target, backend)
        plan = self.plan(settings.steps, settings.buckets, settings.batch_sizes, settings.exhaustive)
        self._captured_step = 1 + max(at.step for at in plan)
        keys: list[Any] = [at.key for at in _with_graphs(plan)]
        self._to_capture: list[int] = sorted(keys, reverse=True)

    def capture(self) -> None:
        """See `Player.capture`."""
        self.reset()
        at_capture = getattr(self.target, "at_capture", None)
        static = {bucket: self._staging.static(bucket) for bucket in self._to_capture}
        for bucket, made in static.items():
            self._staging.remember(bucket, made)
        # as a runner would: none is destroyed while the next one captures, and what graphs read stays
        self._runner_holds: list[Any] = []
        self._static = static
        for bucket in self._to_capture:
            values = at_capture(bucket) if at_capture else self._fresh_inputs(self._captured_step, bucket)
            self._staging.stage(static[bucket], values, bucket, capturing=True)
            self._warm_up(static[bucket])
            graph = torch.cuda.CUDAGraph()
            for generator in self.generators:
                graph.register_generator_state(generator)
            with torch.cuda.graph(graph):
                self._runner_holds.append((graph, self.target.forward(static[bucket])))

    def eager_step(self, step: int) -> None:
        """See `Player.eager_step`."""
        self.target.forward(self._fresh_inputs(self._captured_step + step, self._to_capture[-1]))

    def serve(self, step: int) -> None:
        """See `Player.serve`: staging is all that is left of it."""
        bucket = self._to_capture[-1]
        fresh = self._fresh_inputs(self._captured_step + step, bucket)
        self._staging.stage(self._static[bucket], fresh, bucket, capturing=False)


class RunnerPlayer(RunnerSubject):
    """Lets the target make its runner, which meets each bucket twice: some record lazily."""

    error_mode = ""

    def __init__(self, target: Any, backend: Backend, settings: Settings) -> None:
        super().__init__(target, backend)
        plan = self.plan(settings.steps, settings.buckets, settings.batch_sizes, settings.exhaustive)
        self._plan = _with_graphs(plan)

    def capture(self) -> None:
        """See `Player.capture`."""
        self.reset()
        self.capture_all(self._plan, lambda at: None)

    def eager_step(self, step: int) -> None:
        """See `Player.eager_step`."""
        self.target.forward(self._fresh_inputs(len(self._plan) + step, self._plan[0].rows))

    def serve(self, step: int) -> None:
        """See `Player.serve`."""
        assert self._runner is not None
        self._runner(self._fresh_inputs(len(self._plan) + step, self._plan[0].rows))


class EnginePlayer:
    """Lets the engine capture anew: by `recapture()`, in its first steps, or by making a new one."""

    error_mode = ""

    def __init__(
        self, target: Any, backend: Backend, settings: Settings, load: Callable[[], Any], opened: Callable[[], int]
    ) -> None:
        subject = EngineSubject(target, backend)
        self.form = subject.form
        self.generators = subject.generators
        self._engine = target
        self._load = load
        self._opened = opened
        self._by_loading = False
        plan = subject.plan(settings.steps, settings.buckets, settings.batch_sizes, settings.exhaustive)
        self._plan = _with_graphs(plan)

    def roots(self) -> Mapping[str, object]:
        """See `Player.roots`."""
        give = getattr(self._engine, "roots", None)
        return dict(give()) if give else {"": self._engine}

    def eager_step(self, step: int) -> None:
        """See `Player.eager_step`."""
        self._engine.graphs(False)
        self._engine.step(step, self._plan[0].rows)
        self._engine.graphs(True)

    def serve(self, step: int) -> None:
        """See `Player.serve`."""
        self._engine.step(step, self._plan[0].rows)

    def capture(self) -> None:
        """See `Player.capture`. Raises Inconclusive if the engine captures nothing."""
        if not self._by_loading:
            self._play()
            if self._opened():
                return
            self._by_loading = True
        self._engine = self._load()
        self._play()
        if not self._opened():
            raise Inconclusive(
                "the engine captured nothing: not in its first steps, and not when it was made anew",
                seen=f"steps of {', '.join(str(at.rows) for at in self._plan)} rows, with graphs(True)",
                fix="let recapture() capture its graphs, or choose --batch-sizes that it serves by a graph",
            )

    def _play(self) -> None:
        engine = self._engine
        engine.graphs(False)
        engine.reset()
        engine.graphs(True)
        if contract.has(engine, "recapture"):
            engine.recapture()
        if self._opened():
            return
        for at in self._plan:
            engine.step(at.step, at.rows)


class LoadingPlayer:
    """A target that cannot even be made, because it captures then and the capture fails: it is made, again and again.

    Args:
        load: makes it.
    """

    form = "being made"
    error_mode = ""
    generators: tuple[torch.Generator, ...] = ()

    def __init__(self, load: Callable[[], Any]) -> None:
        self._load = load

    def roots(self) -> Mapping[str, object]:
        """None is known yet."""
        return {}

    def capture(self) -> None:
        """See `Player.capture`."""
        self._load()

    def eager_step(self, step: int) -> None:
        """Nothing: it was never made."""

    def serve(self, step: int) -> None:
        """Nothing: it was never made."""


def cause(error: Exception) -> Exception:
    """What the target raised, out of what the doctor made of it."""
    inner = error.__cause__
    return inner if isinstance(error, DoctorError) and isinstance(inner, Exception) else error
