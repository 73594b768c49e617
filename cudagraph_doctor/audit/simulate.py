"""Arrivals stepped through time: a slow fallback makes the batch grow, which keeps the fallback in use.

The control is the same arrivals with a graph for every size. A load that drains there and does not here is stuck on the
fallback ("never recovers").
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cudagraph_doctor.audit.costs import Costs
from cudagraph_doctor.audit.keys import KeySet, Mode

_MOST_STEPS = 1_000_000


@dataclass(frozen=True, slots=True)
class Arrivals:
    """What comes in."""

    rate: float
    """Requests a second, at random times."""
    output_length: float
    """Decode steps of a request; geometric, this is the mean."""
    burst: int = 0
    """Requests that come at once, a tenth into the time."""
    seconds: float = 60.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Course:
    """How one run went."""

    steps: dict[int, int]
    """Batch -> decode steps."""
    batches: tuple[int, ...]
    """The batch at each of `SAMPLES` equal moments."""
    waiting: int
    """Requests in the queue at the end."""
    late_missed: float
    """Share of the steps of the last quarter that no full graph served."""
    late_batch: float
    """Their mean batch."""
    seconds: float
    """Until when it ran."""
    whole: bool
    """False: it took too many steps, and ended before the time."""


SAMPLES = 24


def run(arrivals: Arrivals, most: int, step_ms: Callable[[int], float], missed: Callable[[int], bool]) -> Course:
    """Step through the time.

    Args:
        arrivals: what comes in.
        most: requests that run at once; others wait.
        step_ms: the time of a step by its batch.
        missed: whether a batch is served by no full graph.
    """
    draw = np.random.default_rng(arrivals.seed)
    now, end = 0.0, arrivals.seconds * 1e3
    to_come = arrivals.burst
    active = waiting = 0
    steps: dict[int, int] = {}
    samples: list[int] = []
    late = late_missed = late_rows = 0
    taken = 0
    while now < end and taken < _MOST_STEPS:
        room = min(waiting, most - active)
        active, waiting = active + room, waiting - room
        while len(samples) < SAMPLES and now >= len(samples) * end / SAMPLES:
            samples.append(active)
        if not active:
            # Idle until the next request, or the burst: then the next request is drawn anew, arrivals have no memory.
            until = end / 10 if to_come else end
            gap = float(draw.exponential(1e3 / arrivals.rate))
            gap, came = (gap, 1) if now + gap < until else (until - now, 0)
        else:
            gap = step_ms(active)
            came = int(draw.poisson(arrivals.rate * gap / 1e3))
            steps[active] = steps.get(active, 0) + 1
            taken += 1
            if now >= 0.75 * end:
                late, late_missed, late_rows = late + 1, late_missed + missed(active), late_rows + active
            active -= int(draw.binomial(active, 1 / arrivals.output_length))
        now += gap
        waiting += came
        if now >= end / 10:
            waiting, to_come = waiting + to_come, 0
    samples += [active] * (SAMPLES - len(samples))
    return Course(
        steps,
        tuple(samples),
        waiting,
        late_missed / late if late else 0.0,
        late_rows / late if late else 0.0,
        now / 1e3,
        now >= end,
    )


@dataclass(frozen=True, slots=True)
class Comparison:
    """The list as it is, and its control."""

    listed: Course
    every_size: Course
    """With a graph for every size; what it misses is what this list would not serve."""

    @property
    def whole(self) -> bool:
        """Whether both ran to the end: else nothing can be said of it."""
        return self.listed.whole and self.every_size.whole

    @property
    def never_recovers(self) -> bool:
        """The end runs on the fallback, while with graphs for all sizes the batch is one that this list serves."""
        return self.whole and self.listed.late_missed >= 0.5 and self.every_size.late_missed < 0.05


def compare(arrivals: Arrivals, keys: KeySet, costs: Costs) -> Comparison:
    """Run both."""
    times: dict[int, float] = {}

    def missed(batch: int) -> bool:
        mode = keys.serve(keys.size(batch)).mode
        return mode is not Mode.FULL and not (mode is Mode.PIECEWISE and not keys.full)

    def listed(batch: int) -> float:
        if batch not in times:
            size = keys.size(batch)
            key = keys.serve(size).key
            times[batch] = costs.eager_ms(size) if key is None else costs.replay(key).at(size)
        return times[batch]

    def every_size(batch: int) -> float:
        return costs.replay(keys.size(batch)).at(keys.size(batch))

    return Comparison(run(arrivals, keys.most, listed, missed), run(arrivals, keys.most, every_size, missed))
