"""The table of the design: what eager, fresh and replayed say together about one step. Plain Python, no torch calls.

`checks.eager_diff` collects a `StepRecord`; `judge` holds the rules, so they are tested with made-up records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from cudagraph_doctor.proof.compare import Difference, Level, worst
from cudagraph_doctor.proof.state_diff import StateDifference


@dataclass(frozen=True, slots=True)
class Gap:
    """How one result differs from another."""

    outputs: tuple[Difference, ...] = ()
    state: StateDifference = field(default_factory=StateDifference)

    @property
    def level(self) -> Level:
        """The worse of outputs and state. Rounding in one makes integers of the other follow (see `worst`)."""
        levels = list(Level)
        return max(self.output_level, self.state.level, key=levels.index)

    @property
    def output_level(self) -> Level:
        """The outputs alone; integers that differ beside rounded state are rounding as well."""
        level = worst(list(self.outputs))
        only_integers = bool(self.outputs) and all(d.integral and not d.reason and not d.exact for d in self.outputs)
        if level is Level.LARGE and only_integers and self.state.level is Level.SMALL:
            return Level.SMALL
        return level

    @property
    def relative(self) -> float:
        """The largest relative difference of a float output."""
        return max((d.relative for d in self.outputs if not d.integral), default=0.0)

    def __str__(self) -> str:
        parts = [str(d) for d in self.outputs]
        if self.state.level is not Level.EQUAL:
            parts.append(str(self.state))
        return "; ".join(parts) or "bit for bit equal"


@dataclass(frozen=True, slots=True)
class Counted:
    """How often an arm differed, run after run in turn with its control, by as much as is spoken of."""

    differs: int
    of: int
    control: int
    control_of: int

    def __str__(self) -> str:
        return f"in {self.differs} of {self.of} replays, eager from itself in {self.control} of {self.control_of}"


@dataclass(slots=True)
class StepRecord:
    """The facts about one step."""

    eager_control: Gap = field(default_factory=Gap)
    """Eager against eager."""
    replay_control: Gap = field(default_factory=Gap)
    """Replayed against replayed."""
    replayed: Gap = field(default_factory=Gap)
    """Replayed against eager."""
    fresh: Gap | None = None
    """Fresh against eager; None if there was no need or no way to capture now."""
    fresh_control: Gap | None = None
    fresh_replayed: Gap | None = None
    """Replayed against fresh."""
    padded: Gap | None = None
    """Fresh against eager on the same static inputs; None if that was not run."""
    same_nodes: bool | None = None
    """Whether old and fresh graph launch the same kernels; None if not read."""
    harm_step: int | None = None
    """Where only state differed: the later step whose eager output it changed; None if it changed none."""
    padding: Gap | None = None
    """Replayed against eager where the doctor made up the padding: eager gets the same padding then, in all else."""
    counted: Counted | None = None
    """Replayed against eager, run after run; None as long as nothing is to be spoken of."""
    counted_fresh: Counted | None = None
    """Replayed against fresh, whose control is fresh against itself."""

    @property
    def harmed(self) -> bool:
        """Whether an output is wrong, at this step or by its state at a later one."""
        return self.replayed.output_level is Level.LARGE or self.harm_step is not None

    def count(self, gaps: Sequence[Gap], controls: Sequence[Gap]) -> Counted:
        """How many of the gaps, and of their controls, are as bad."""
        return Counted(sum(map(self.as_bad, gaps)), len(gaps), sum(map(self.as_bad, controls)), len(controls))

    def as_bad(self, gap: Gap) -> bool:
        """Whether a gap is one like that between the replay and eager: as large, and in outputs if that is in outputs.

        Rounding counts from a quarter of its size on: it is another amount at each run.
        """
        bad = self.replayed
        if not bad.outputs:
            return _ORDER.index(gap.state.level) >= _ORDER.index(bad.state.level)
        if bad.output_level is Level.LARGE:
            return gap.output_level is Level.LARGE
        return bool(gap.outputs) and gap.relative >= bad.relative / 4


class Kind(StrEnum):
    """What a step turned out to be."""

    CLEAN = "clean"
    NUMERICS = "numerics"
    """Rounding; a note."""
    HARMLESS = "harmless"
    """State differs, without effect on any output looked at; a note."""
    FROZEN = "frozen"
    DIFFERS = "differs"
    """Even a graph captured now differs from eager."""
    UNTOLD = "untold"
    """Differs, and there is no fresh graph to tell frozen from staging."""
    UNSTABLE = "unstable"
    """Replays of one graph differ from each other, eager does not."""
    UNKNOWN = "unknown"
    """Eager differs from itself by as much: nothing can be demanded."""
    SHAPE = "shape"
    """Eager at the graph's batch size does what the graph does: the size alone turns a close decision; a note."""
    PADDING = "padding"
    """The padding that the doctor made up does it, and eager with the same padding as well: nobody's fault."""


_ORDER = list(Level)


def worse(a: Gap, b: Gap) -> Gap:
    """Of two gaps the one that says more noise."""
    return max(a, b, key=lambda gap: (_ORDER.index(gap.level), gap.relative))


def _beyond(gap: Gap, *controls: Gap | None) -> bool:
    """Whether `gap` is worse than every control, in level and (for rounding) by a factor of four in size."""
    noise = max((c.level for c in controls if c is not None), key=_ORDER.index, default=Level.EQUAL)
    if gap.level is Level.EQUAL:
        return False
    if _ORDER.index(gap.level) > _ORDER.index(noise):
        return True
    size = max((c.relative for c in controls if c is not None), default=0.0)
    return noise is Level.SMALL and gap.level is Level.SMALL and gap.relative > 4 * size > 0


def needs_fresh(record: StepRecord) -> bool:
    """Whether the step cannot be judged without a graph captured now."""
    return _beyond(record.replayed, record.eager_control, record.replay_control)


_SOUND = (Kind.CLEAN, Kind.NUMERICS, Kind.HARMLESS, Kind.UNKNOWN)


def judge(record: StepRecord) -> Kind:
    """Apply the table; what is sound only by the doctor's own padding cannot be judged."""
    kind = _judge(record)
    return Kind.PADDING if record.padding is not None and kind in _SOUND else kind


def _judge(record: StepRecord) -> Kind:
    """The table.

    | eager, fresh | fresh, replayed | |
    |---|---|---|
    | equal | equal | clean |
    | equal or small | differ | frozen |
    | large | equal | differs |
    | small | equal | numerics |
    | large | differ | differs |
    """
    eager_noise, replay_noise = record.eager_control.level, record.replay_control.level
    if eager_noise is Level.LARGE:
        return Kind.UNKNOWN
    if replay_noise is Level.LARGE:
        return Kind.UNSTABLE
    if record.replayed.level is Level.EQUAL:
        return Kind.CLEAN
    if not needs_fresh(record):
        return Kind.NUMERICS
    harmed = record.harmed
    if record.fresh is None or record.fresh_replayed is None:
        if not harmed:
            return Kind.HARMLESS if record.replayed.state.level is Level.LARGE else Kind.NUMERICS
        return Kind.UNTOLD
    if record.fresh.level is Level.LARGE and harmed and record.eager_control.level is not Level.LARGE:
        return Kind.DIFFERS  # whatever else is frozen: what is captured now is wrong as well
    if _beyond(record.fresh_replayed, record.fresh_control, record.replay_control):
        if record.same_nodes is False and not harmed:
            return Kind.NUMERICS
        if record.fresh_replayed.outputs or record.harm_step is not None:
            # where the graph captured now is wrong as well, something else is than what is frozen
            return Kind.DIFFERS if record.fresh.output_level is Level.LARGE else Kind.FROZEN
        return Kind.HARMLESS
    if harmed:
        return Kind.DIFFERS
    return Kind.HARMLESS if record.replayed.state.level is Level.LARGE else Kind.NUMERICS
