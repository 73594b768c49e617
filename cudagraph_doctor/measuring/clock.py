"""How long a step takes: from its submission until the device is done, by the host's clock, eager and replayed in turn.

Each run starts from the saved state with an idle device. A LoopTarget's replay is timed without its staging, its
`forward` without the making of inputs; a runner or an engine is timed with all that its step does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from types import TracebackType

from cudagraph_doctor.graph.backend import Backend
from cudagraph_doctor.measuring.model import Timing
from cudagraph_doctor.proof.arms import Arms
from cudagraph_doctor.proof.loop import LoopSubject
from cudagraph_doctor.proof.subject import Planned

WARM_UP = 3
"""Runs of each way that are not counted."""
RUNS = 11
"""Runs of each way that are."""


class Span:
    """The time between entering and leaving, with an idle device at both ends."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._began = 0.0
        self.ms = 0.0
        """Of the last time."""

    def __enter__(self) -> Span:
        self._backend.synchronize()
        self._began = time.perf_counter()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _at: TracebackType | None
    ) -> None:
        if error is None:
            self._backend.synchronize()
        self.ms = (time.perf_counter() - self._began) * 1e3


class Clock:
    """Times the steps of a subject.

    Args:
        arms: its arms, brought to before the first step, with the state saved.
    """

    def __init__(self, arms: Arms) -> None:
        self._arms = arms
        self._span = Span(arms.backend)

    def times(self, exact: Planned, padded: Planned | None) -> tuple[Timing, Timing | None, Timing]:
        """(replay of the full batch, replay of the smallest one, eager step of the full batch), run in turn."""
        ways: dict[str, tuple[Callable[[Planned], None], Planned]] = {"replay": (self._replay, exact)}
        if padded is not None:
            ways["padded"] = (self._replay, padded)
        ways["eager"] = (self._eager, exact)
        times: Mapping[str, list[float]] = {name: [] for name in ways}
        for run in range(WARM_UP + RUNS):
            for name, (way, at) in ways.items():
                self._arms.rewind()
                way(at)
                if run >= WARM_UP:
                    times[name].append(self._span.ms)
        return (
            Timing.of(times["replay"]),
            Timing.of(times["padded"]) if padded is not None else None,
            Timing.of(times["eager"]),
        )

    def _replay(self, at: Planned) -> None:
        subject = self._arms.subject
        if isinstance(subject, LoopSubject) and subject.form == "loop":
            graph = subject.staged(at)
            with self._span:
                graph.replay()
        else:
            with self._span:
                subject.replayed(at)

    def _eager(self, at: Planned) -> None:
        subject = self._arms.subject
        if isinstance(subject, LoopSubject) and subject.form == "loop":
            subject.around_forward = self._span
            try:
                subject.eager(at)
            finally:
                subject.around_forward = nullcontext()
        else:
            with self._span:
                subject.eager(at)
