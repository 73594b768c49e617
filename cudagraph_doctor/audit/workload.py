"""The batches that have to be served: a histogram of sizes, from a log, a trace, or assumed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cudagraph_doctor.audit.keys import KeySet, Unit
from cudagraph_doctor.errors import Inconclusive
from cudagraph_doctor.misses.sizes import NO_DECODE
from cudagraph_doctor.traces.labels import Stage
from cudagraph_doctor.traces.steps import Trace


@dataclass(frozen=True, slots=True)
class Workload:
    """How often batches of each size come."""

    steps: Mapping[int, float]
    """Size -> number of steps, or weight. Sizes are at least 1."""
    unit: Unit
    """What the sizes count."""
    origin: str
    """Where they come from, in words."""
    rows: int = 0
    """Records read."""
    idle: int = 0
    """Records of empty batches: left out."""
    not_used: tuple[str, ...] = field(default=())
    """What was left out or taken so, in sentences."""

    @property
    def total(self) -> float:
        """Steps, or their weights added up."""
        return sum(self.steps.values())

    def for_keys(self, keys: KeySet) -> dict[int, float]:
        """The same steps by sizes as these keys count. Tokens become whole requests, rounded up."""
        if self.unit is keys.unit:
            return dict(self.steps)
        found: dict[int, float] = {}
        for size, weight in self.steps.items():
            counted = keys.size(size) if self.unit is Unit.REQUESTS else -(-size // keys.width)
            found[counted] = found.get(counted, 0.0) + weight
        return found


def assumed(most: int) -> Workload:
    """Every number of requests as often as any other: what is taken where no workload is given."""
    return Workload(
        dict.fromkeys(range(1, most + 1), 1.0), Unit.REQUESTS, f"assumed: 1 to {most} requests, all as often"
    )


def of_traces(traces: Sequence[Trace]) -> Workload:
    """The batches of the decode steps in traces. Raises Inconclusive if no step's label tells its size."""
    records = [step for trace in traces for step in trace.steps if step.label.stage not in NO_DECODE]
    mixed = [step for step in records if step.label.stage is Stage.MIXED]
    decode = [step for step in records if step.label.stage is not Stage.MIXED]
    in_tokens = bool(decode) and all(step.label.in_tokens for step in decode)
    sizes = [step.label.tokens if in_tokens else step.label.batch for step in decode]
    steps: dict[int, float] = {}
    for size in sizes:
        if size:
            steps[size] = steps.get(size, 0.0) + 1
    if not steps:
        raise Inconclusive(
            "No decode step in the trace has a label that tells its batch.",
            seen=f"{len(records)} steps",
            fix='Label the steps, such as torch.cuda.nvtx.range(f"decode step={i} bs={n}"), and record again.',
        )
    unknown = sum(size is None for size in sizes)
    said = [f"{unknown} of {len(decode)} decode steps of the trace: their labels tell no batch"] if unknown else []
    said += [f"{len(mixed)} steps of the trace that mix prefill and decode"] if mixed else []
    names = ", ".join(trace.source for trace in traces)
    unit = Unit.TOKENS if in_tokens else Unit.REQUESTS
    return Workload(steps, unit, f"decode steps of {names}", len(records), sizes.count(0), tuple(said))


def of_arrivals(steps: Mapping[int, float], rate: float, output_length: float, seconds: float) -> Workload:
    """The batches of simulated arrivals. Raises Inconclusive if none was ever decoded."""
    if not steps:
        raise Inconclusive(
            f"No request arrived in {seconds:.0f} s at {rate:g} requests a second.",
            fix="Simulate a longer time (--seconds), or a higher rate.",
        )
    return Workload(
        steps,
        Unit.REQUESTS,
        f"simulated: {rate:g} requests a second of {output_length:g} decode steps, {seconds:.0f} s",
        int(sum(steps.values())),
    )
