"""All that is measured of a target, in order: capture, correctness, times, switching, other pools.

What takes the most memory comes last, and what was found by then is kept if it does not fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cudagraph_doctor.byte_sizes import in_bytes
from cudagraph_doctor.errors import Inconclusive
from cudagraph_doctor.findings import Finding
from cudagraph_doctor.graph.backend import Backend, LiveGraph
from cudagraph_doctor.measuring import captures, clock, pools, visits, wording
from cudagraph_doctor.measuring.model import Measured, Measurement, Pools, Switching, Timing
from cudagraph_doctor.measuring.switching import ORDERS, switch
from cudagraph_doctor.measuring.visits import Key
from cudagraph_doctor.progress import Progress
from cudagraph_doctor.proof.arms import Arm, Arms
from cudagraph_doctor.proof.danger import Danger
from cudagraph_doctor.proof.engine import EngineSubject
from cudagraph_doctor.proof.loop import LoopSubject
from cudagraph_doctor.proof.start import subject_of
from cudagraph_doctor.proof.steps import Steps
from cudagraph_doctor.proof.subject import Planned
from cudagraph_doctor.proof.wording import explain
from cudagraph_doctor.settings import Settings

_COPIES = 6
"""Copies of the state that are held at once."""
_ARMS = 5
"""Runs of a clean step, its trials included."""


@dataclass(frozen=True, slots=True)
class Collected:
    """What came of it."""

    measurement: Measurement
    findings: tuple[Finding, ...]
    """What was wrong in a key, or with the target's reset."""
    judged: int
    """Steps whose results were compared."""
    played: int
    not_checked: tuple[str, ...]


class Collector:
    """Measures one target.

    Args:
        target: a LoopTarget or an EngineTarget.
        backend: its hooks are in since before the target was made.
        settings: keys, batch sizes, tolerances, margin of memory.
        progress: told what is to come and what is done.
    """

    def __init__(self, target: object, backend: Backend, settings: Settings, progress: Progress) -> None:
        self.subject: LoopSubject | EngineSubject = subject_of(target, backend)
        self.backend = backend
        self.settings = settings
        self.progress = progress
        self.arms = Arms(self.subject, backend, lambda at: self.danger.watch(at))
        self.danger = Danger(self.arms, target, progress)
        self.room = captures.Room(backend, settings.memory_margin)
        self.real = backend.name == "cuda"
        """Whether times and memory mean anything."""

    def collect(self) -> Collected:
        """Everything, in order. Raises DoctorError where the target cannot be measured at all."""
        keys, steps = visits.planned(self.subject, self.settings)
        left_out = self._capture(keys, steps)
        keys = [key for key in keys if key.size not in left_out]
        if not keys:
            raise Inconclusive(
                "there is no room for the first key",
                seen=f"{in_bytes(self.backend.free_bytes())} are free, {in_bytes(self.room.margin)} have to stay so",
                fix="free memory that others hold, make the KV cache smaller, or allow a smaller --memory-margin",
            )
        steps = [
            replace(at, index=i) for i, at in enumerate(at for at in steps if visits.number(at.key) not in left_out)
        ]
        keys = visits.keys_of(steps)
        played, findings = self._compare(steps)
        measured = [self._key(key) for key in keys]
        self.progress.stage("switching between keys", 1)
        switching = switch(self.arms, visits.first_steps(self.subject, keys, len(steps)), self.settings.seed)
        found, alone = self._pools(keys, steps)
        measured = [replace(one, pool_bytes=alone.get(one.size)) for one in measured]
        unjudged = [step for step in played.played if step.verdict == "inconclusive"]
        return Collected(
            Measurement(
                self.subject.form,
                tuple(sorted(measured, key=lambda one: one.size)),
                max(at.rows for at in steps),
                found,
                tuple(left_out),
                switching,
            ),
            tuple(findings),
            len(played.played) - len(unjudged),
            len(played.played),
            tuple(self._not_checked(left_out, switching, found, alone)),
        )

    def _capture(self, keys: Sequence[Key], steps: Sequence[Planned]) -> list[int]:
        self.progress.stage("finding the state", 2)
        found = self.arms.discover(steps)
        self._say_what_is_to_come(keys, steps)
        self.progress.advance("captures")
        left_out = captures.capture_all(self.subject, steps, self.room)
        self.arms.discover_graphs([at for at in steps if visits.number(at.key) not in left_out])
        needed = _COPIES * sum(extent.bytes for extent in found.state)
        if needed > self.backend.free_bytes():
            raise Inconclusive(
                "there is not enough free device memory for copies of the state beside the graphs",
                seen=f"{in_bytes(needed)} needed, {in_bytes(self.backend.free_bytes())} free",
                fix="use a smaller KV cache for this run",
            )
        return left_out

    def _say_what_is_to_come(self, keys: Sequence[Key], steps: Sequence[Planned]) -> None:
        each, state = self.arms.found.step_seconds, sum(extent.bytes for extent in self.arms.found.state)
        times = 3 * (clock.WARM_UP + clock.RUNS) * len(keys) if self.real else 0
        runs = _ARMS * len(steps) + times + 2 * len(keys) * (ORDERS + 3)
        captured = 3 * len(keys) if self.real and self.subject.form == "loop" else len(keys)
        self.progress.say(
            f"{len(keys)} keys, about {captured} captures and {runs} runs of some {each * 1e3:.3g} ms: "
            f"{(runs + 4 * captured) * each:.2g} s or more; up to {in_bytes(_COPIES * state)} for copies of the state, "
            f"and the graphs: {in_bytes(self.backend.free_bytes())} are free, {in_bytes(self.room.margin)} stay so"
        )

    def _compare(self, steps: Sequence[Planned]) -> tuple[Steps, list[Finding]]:
        """Every batch by `diff`'s arms."""
        played = Steps(self.subject, self.arms, self.danger, self.settings)
        self.progress.stage("comparing with eager", len(steps))
        self.arms.begin(steps)
        for at in steps:
            self.progress.advance(f"{at.in_rows}, key {visits.number(at.key)}")
            played.play(at)
        rows = {at.step: at.rows for at in steps}
        found = []
        for case in played.cases:
            size, batches = visits.number(case.at.key) or 0, [rows[step] for step in case.steps]
            told = explain(case, self.backend.name)
            found += [wording.wrong(finding, size, batches, self.settings.spec) for finding in told]
        return played, found

    def _key(self, key: Key) -> Measured:
        """Times and what is known of the graphs."""
        self.arms.begin(key.steps)
        self.arms.save()
        for at in key.steps:
            self.arms.run(Arm.REPLAYED, at)  # an engine may have captured anew since
        graphs = captures.graphs_of(self.subject, key)
        nodes = [live.nodes for live in graphs if live.nodes is not None]
        one = Measured(
            key.size,
            key.exact.rows,
            key.smallest.rows,
            len(graphs),
            sum(nodes) if len(nodes) == len(graphs) else None,
            graph_bytes=self.room.beside.get(key.size),
        )
        if not self.real or not self.subject.has_replayed(key.exact):
            return one
        self.progress.stage(f"timing key {key.size}", 1)
        padded = key.smallest if key.smallest.rows < key.exact.rows else None
        replay, few, eager = clock.Clock(self.arms).times(key.exact, padded)
        return _with_times(one, graphs, replay, few, eager)

    def _pools(self, keys: Sequence[Key], steps: Sequence[Planned]) -> tuple[Pools | None, dict[int, int]]:
        if not self.real:
            return None, {}
        now = {live.pool for key in keys for live in captures.graphs_of(self.subject, key)}
        found = Pools(captures.pool_bytes(now), len(now))
        if self.subject.form != "loop":
            return found, {}
        self.progress.stage("other pools and orders", 2)
        trial = (self.subject.target, self.backend, keys, steps, self.room)
        alone = pools.alone(*trial)
        self.progress.advance("the smallest key first")
        return replace(found, smallest_first=pools.smallest_first(*trial)), alone

    def _not_checked(
        self, left_out: Sequence[int], switching: Switching, found: Pools | None, alone: dict[int, int]
    ) -> list[str]:
        said = [*self.subject.not_checked, *self.backend.not_checked()]
        if left_out:
            said.append(
                f"keys {', '.join(map(str, left_out))}: not captured, for less than {in_bytes(self.room.margin)} would "
                "be left free (--memory-margin)"
            )
        if not self.real:
            said.append("times and memory: the captures are emulated")
        elif self.subject.form != "loop":
            said.append("memory of single graphs, other pools and orders of capture: the target captures by itself")
        elif found and (found.smallest_first is None or not alone):
            said.append("other pools and orders of capture: there was no room to capture again (--memory-margin)")
        if switching.unstable:
            said.append(f"switching to keys {', '.join(map(str, switching.unstable))}: their replays differ anyway")
        if not switching.with_state:
            said.append("state that keys leave when they are switched: too large to keep; outputs were compared")
        return said


def _with_times(
    one: Measured, graphs: Sequence[LiveGraph], replay: Timing, padded: Timing | None, eager: Timing
) -> Measured:
    return replace(
        one,
        capture_ms=_sum_ms([live.capture_s for live in graphs]),
        instantiate_ms=_sum_ms([live.instantiate_s for live in graphs]),
        replay=replay,
        padded=padded,
        eager=eager,
    )


def _sum_ms(seconds: Sequence[float | None]) -> float | None:
    """In ms; None where one is not known."""
    known = [s for s in seconds if s is not None]
    return round(1e3 * sum(known), 4) if known and len(known) == len(seconds) else None
