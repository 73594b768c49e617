"""Where the time of a check goes: that of some functions, each without what it calls of the others.

`inputs_cost.py` prints it below its lines, by stage of the check. Nothing of it is in the product.
"""

from __future__ import annotations

import functools
import gc
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from cudagraph_doctor.graph import memory
from cudagraph_doctor.graph.backend import Backend
from cudagraph_doctor.proof import arms, loop, steps
from cudagraph_doctor.proof.state import Memory
from cudagraph_doctor.proof.state_changes import Changes
from cudagraph_doctor.replays import baked, recapture
from cudagraph_doctor.rewalk import Rewalk

_TIMED: tuple[tuple[str, Any, str], ...] = (
    ("steps run eagerly", loop.LoopSubject, "eager"),
    ("replays of the old graph", loop.LoopSubject, "replayed"),
    ("replays of a fresh graph", loop.LoopSubject, "fresh"),
    ("reset()", loop.LoopSubject, "reset"),
    ("captures", loop.LoopSubject, "_capture"),
    ("names held at a capture", loop, "hold"),
    ("graphs read", recapture, "read"),
    ("segments listed", memory, "snapshot"),
    ("host values", recapture, "_host"),
    ("host values", arms.Arms, "_host"),
    ("host memory", recapture, "host_memory"),
    ("captures judged", baked, "judge"),
    ("walks along a trail", Rewalk, "__call__"),
    ("names looked up", arms.Arms, "look_around"),
    ("fingerprints", Memory, "fingerprint"),
    ("fingerprints compared", Memory, "changed"),
    ("state saved", Memory, "save"),
    ("state put back", Memory, "restore"),
    ("state after a run", Changes, "__init__"),
    ("state compared", steps, "same_state"),
)
"""What it is called, where it is looked up, its name there."""
_COLLECTOR = "Python's collector of cycles"


class Phases:
    """Seconds and calls by (stage, phase). `stage` is asked for the name of the present one."""

    def __init__(self, stage: Callable[[], str]) -> None:
        self.seconds: defaultdict[tuple[str, str], float] = defaultdict(float)
        self.calls: Counter[tuple[str, str]] = Counter()
        self._stage = stage
        self._inside: list[float] = []
        """For each phase that is under way, the seconds of those in it."""
        self._began = 0.0

    @contextmanager
    def measured(self) -> Iterator[None]:
        """The functions are timed inside the block."""
        with ExitStack() as stack:
            for phase, owner, name in _TIMED:
                stack.enter_context(mock.patch.object(owner, name, self._timed(phase, getattr(owner, name))))
            gc.callbacks.append(self._collecting)
            stack.callback(gc.callbacks.remove, self._collecting)
            yield

    def _timed(self, phase: str, function: Any) -> Any:
        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            self._inside.append(0.0)
            began = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self._note(phase, time.perf_counter() - began, self._inside.pop())

        return timed

    def _note(self, phase: str, took: float, inside: float) -> None:
        key = (self._stage(), phase)
        self.seconds[key] += took - inside
        self.calls[key] += 1
        if self._inside:
            self._inside[-1] += took

    def _collecting(self, what: str, _info: object) -> None:
        if what == "start":
            self._began = time.perf_counter()
        else:
            self._note(_COLLECTOR, time.perf_counter() - self._began, 0.0)

    def told(self, stages: dict[str, float], backend: Backend) -> list[str]:
        """The table. Phases that took less than a hundredth of a second are left out.

        Args:
            stages: seconds of each.
            backend: knows what of the captures was torch's and CUDA's.
        """
        lines = []
        for stage, seconds in stages.items():
            some = {phase: took for (where, phase), took in self.seconds.items() if where == stage and took >= 0.01}
            lines.append(f"{stage}: {seconds:.2f} s, of which {seconds - sum(some.values()):.2f} s none of these")
            lines += [
                f"  {took:6.2f} s  {self.calls[stage, phase]:6} x  {phase}"
                for phase, took in sorted(some.items(), key=lambda item: -item[1])
            ]
        graphs = backend.log.graphs
        begun = sum(live.capture_s or 0.0 for live in graphs)
        made = sum(live.instantiate_s or 0.0 for live in graphs)
        return [
            *lines,
            f"of {len(graphs)} captures: {begun:.2f} s from begin to end, {made:.2f} s instantiated at once",
        ]
