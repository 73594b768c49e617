"""The common step table: what every reader of traces makes, and all that the judges of `misses/` see. Plain data.

Times are integers in nanoseconds on the trace's own clock. None means "not recorded", never zero.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cudagraph_doctor.traces.labels import Label


@dataclass(frozen=True, slots=True)
class Lane:
    """One process of a trace: a rank."""

    name: str
    """"rank 0", or "process 4711"."""
    source: str
    """The file's name, without its folder."""
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step of one lane, as recorded."""

    lane: int
    """Index into the lanes of the run."""
    index: int
    """0, 1, ... within the lane, in order of time."""
    label: Label
    start_ns: int
    end_ns: int
    whole: bool = True
    """False: its range has no end, or CUDA was not recorded all through it."""

    captures: int = 0
    instantiations: int = 0
    updates: int = 0
    """Exec updates: of a whole graph, or of parameters of single nodes."""
    failures: tuple[str, ...] = ()
    """Graph and capture calls that returned an error, with what it means."""
    graph_launches: int = 0
    """Those that succeeded."""
    loose_launches: int = 0
    """Kernels launched outside of graphs and of captures."""
    captured_launches: int = 0
    """Launch calls that went into a capture: they ran nothing."""
    side_graph_launches: int = 0
    """Graph launches of other threads of the process, within the step's time."""
    side_loose_launches: int = 0

    graph_kernels: int | None = None
    """Kernels inside the graphs launched; None if they are not recorded."""
    graph_kernels_from: str = ""
    """"rows": seen running; "capture": launch calls counted while the graph was captured."""
    launches_without_rows: int = 0
    """Graph launches to which no GPU activity belongs."""
    unexplained: int = 0
    """Graph activities launched in this step by a call that is no graph launch."""
    graphs: tuple[str, ...] = ()
    """The graphs launched, in order; "" where the trace does not tell which."""

    first_call_ns: int | None = None
    """Start of the first launch call."""
    last_call_ns: int | None = None
    """End of the last launch call."""
    call_ns: int = 0
    """Time inside launch calls."""
    gpu_start_ns: int | None = None
    gpu_end_ns: int | None = None
    gpu_busy_ns: int | None = None
    """Time in which the GPU worked for this step, streams overlaid."""
    busy_exact: bool = True
    """False: several streams were not overlaid (too many rows); `gpu_busy_ns` is then the most it can be."""
    streams: int = 0
    overlap: float | None = None
    """1 - (step - max(A, B)) / min(A, B) of its two busiest streams; None with fewer than two."""
    loose_names: tuple[str, ...] = ()
    """The kernels that ran most often outside graphs."""

    @property
    def submit_ns(self) -> int | None:
        """From the first launch call to the end of the last."""
        if self.first_call_ns is None or self.last_call_ns is None:
            return None
        return self.last_call_ns - self.first_call_ns

    @property
    def gpu_span_ns(self) -> int | None:
        """From the first GPU activity to the end of the last."""
        if self.gpu_start_ns is None or self.gpu_end_ns is None:
            return None
        return self.gpu_end_ns - self.gpu_start_ns

    @property
    def gpu_idle_ns(self) -> int | None:
        """Time between its first and last GPU activity in which nothing of it ran."""
        if self.gpu_span_ns is None or self.gpu_busy_ns is None:
            return None
        return max(0, self.gpu_span_ns - self.gpu_busy_ns)


@dataclass(frozen=True, slots=True)
class CaptureRecord:
    """One capture."""

    lane: int
    start_ns: int
    end_ns: int
    bucket: int | None = None
    """From the label of a range around it."""
    kind: str = ""
    launches: int = 0
    """Launch calls in it."""
    graphs: tuple[str, ...] = ()
    """Ids of the graphs that came of it, as launches name them."""
    error: str = ""
    """The first call in it that failed, with what its error means; "" if it succeeded."""


@dataclass(frozen=True, slots=True)
class Gap:
    """The host's time between two replays, added up over a lane: who holds it."""

    lane: int
    count: int
    total_ns: int
    copies_ns: int
    allocation_ns: int
    sync_ns: int
    launches_ns: int
    other_ns: int
    """Other CUDA calls."""

    @property
    def python_ns(self) -> int:
        """What is left: Python and other host work."""
        inside = self.copies_ns + self.allocation_ns + self.sync_ns + self.launches_ns + self.other_ns
        return max(0, self.total_ns - inside)


@dataclass(frozen=True, slots=True)
class Trace:
    """Everything read from one file."""

    source: str
    kind: str
    """"nsys" or "torch.profiler"."""
    version: str
    """Product and schema version, as text."""
    graph_mode: str
    """"graph": a launch is one row; "node": each node has a row; "unknown"."""
    steps_from: str
    """Where steps begin: the label family, or how they were found without one."""
    lanes: tuple[Lane, ...] = ()
    steps: tuple[StepRecord, ...] = ()
    captures: tuple[CaptureRecord, ...] = ()
    gaps: tuple[Gap, ...] = ()
    outside_launches: int = 0
    """Graph and kernel launches in no step and no capture."""
    outside_graph_launches: int = 0
    unmatched_labels: int = 0
    """Ranges whose label fits no pattern."""
    near_labels: tuple[str, ...] = ()
    """Some of these that look like a step's."""
    missing: tuple[str, ...] = ()
    """What is not in the trace, in sentences."""
    facts: dict[str, int] = field(default_factory=dict)
