"""One way to call a step of either form of target. A LoopTarget without a runner gets a plain one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from cudagraph_doctor import tree
from cudagraph_doctor.contract import Form
from cudagraph_doctor.proof.staging import Staging
from cudagraph_doctor.recording.ranges import Ranges


class Runner(Protocol):
    """Plays steps."""

    def step(self, number: int, rows: int) -> object:
        """One decode step, through the graph where there is one."""

    def bucket(self, number: int, rows: int) -> int | None:
        """The bucket that the step is meant for, if that is known."""


class EngineRunner:
    """An EngineTarget: its own entry point, graphs on."""

    def __init__(self, target: Any) -> None:
        self._target = target
        target.graphs(True)
        target.reset()

    def step(self, number: int, rows: int) -> object:
        """See `Runner`."""
        return self._target.step(number, rows)

    def bucket(self, number: int, rows: int) -> int | None:
        """The number in `key(i, n)`, or its first part."""
        if not hasattr(self._target, "key"):
            return None
        key = self._target.key(number, rows)
        first = key[0] if isinstance(key, tuple) and key else key
        return first if isinstance(first, int) and not isinstance(first, bool) else None


class OwnRunner:
    """A LoopTarget with a runner of its own."""

    def __init__(self, target: Any) -> None:
        self._target = target
        self._runner = target.graphed()
        target.reset()

    def step(self, number: int, rows: int) -> object:
        """See `Runner`."""
        return self._runner(self._target.next_inputs(number, rows))

    def bucket(self, number: int, rows: int) -> int | None:
        """The smallest that fits."""
        return next((bucket for bucket in self._target.buckets if bucket >= rows), None)


class PlainRunner(OwnRunner):
    """A LoopTarget without one: every bucket is captured, the largest first; what is larger runs eager."""

    def __init__(self, target: Any, ranges: Ranges, planned: Sequence[tuple[int, int]]) -> None:
        self._target = target
        self._staging = Staging(target, target.next_inputs, "cuda")
        self._staging.steps = [number for number, _ in planned]
        self._graphs: dict[int, tuple[torch.cuda.CUDAGraph, Any]] = {}
        for bucket in sorted(target.buckets, reverse=True):
            with ranges.range(f"capture bucket={bucket}"):
                self._graphs[bucket] = self._capture(bucket)
        target.reset()

    def step(self, number: int, rows: int) -> object:
        """Stage and replay."""
        fresh = _on_device(self._target.next_inputs(number, rows))
        bucket = self.bucket(number, rows)
        if bucket is None:
            return self._target.forward(fresh)
        graph, static = self._graphs[bucket]
        self._staging.stage(static, fresh, bucket, capturing=False)
        graph.replay()
        return None

    def _capture(self, bucket: int) -> tuple[torch.cuda.CUDAGraph, Any]:
        static = self._staging.static(bucket)
        self._staging.remember(bucket, static)
        at_capture = getattr(self._target, "at_capture", None)
        values = at_capture(bucket) if at_capture else self._target.next_inputs(self._staging.steps[0], bucket)
        self._staging.stage(static, _on_device(values), bucket, capturing=True)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            getattr(self._target, "warmup", lambda: self._target.forward(static))()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        for generator in getattr(self._target, "generators", ()) or ():
            graph.register_generator_state(generator)
        with torch.cuda.graph(graph):
            self._target.forward(static)
        return graph, static


def runner_of(target: Any, form: Form, ranges: Ranges, planned: Sequence[tuple[int, int]]) -> Runner:
    """The runner that fits the target; captures happen here. `planned`: (step, rows) of all steps to come."""
    if form == "engine":
        return EngineRunner(target)
    if getattr(target, "graphed", None):
        return OwnRunner(target)
    return PlainRunner(target, ranges, planned)


def _on_device(inputs: Any) -> Any:
    return tree.rebuild(inputs, lambda _, leaf: leaf.cuda() if isinstance(leaf, torch.Tensor) else leaf)
