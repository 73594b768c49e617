"""The verdict of one step, by the rule of `docs/how-to/buckets.md`: FULL, PIECEWISE, MIXED, EAGER, CAPTURE or UNKNOWN.

How many kernels a graph holds is often not recorded. Then the rule is asked twice, with the least and with the most it
can be: if both answers agree, that is the verdict, else it is UNKNOWN, and says what to record.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from cudagraph_doctor.traces.steps import StepRecord

FEW = 16
"""Loose launches that are normal beside a graph: staging, sampling, glue."""
FEW_SHARE = 0.05
"""The same, as a share of the kernels inside the graphs."""
LARGEST_GRAPH = 5000
"""Kernels that a graph can hold at most, for the purpose of a bound; a large decode step has about 1,800."""


class Verdict(StrEnum):
    """What a step was."""

    FULL = "FULL"
    PIECEWISE = "PIECEWISE"
    MIXED = "MIXED"
    EAGER = "EAGER"
    CAPTURE = "CAPTURE"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class Ruling:
    """A verdict, and what there is to say about it."""

    verdict: Verdict
    why: str = ""
    """For UNKNOWN: what is missing."""
    by_side_thread: bool = False
    """The launches are another thread's, attributed by time."""


def rule(graphs: int, loose: int, kernels: int, usual: int) -> Verdict:
    """The rule for a step without a capture.

    Args:
        graphs: graph launches.
        loose: kernel launches outside of graphs.
        kernels: kernels inside the graphs.
        usual: graph launches that are usual for steps of this label.
    """
    if graphs == 0:
        return Verdict.EAGER if loose else Verdict.UNKNOWN
    if few(loose, kernels):
        return Verdict.FULL if graphs == usual else Verdict.PIECEWISE
    if graphs >= 2 and kernels >= loose:
        return Verdict.PIECEWISE
    return Verdict.MIXED


def few(loose: int, kernels: int) -> bool:
    """Whether so many loose launches are normal beside graphs of so many kernels."""
    return loose <= max(FEW, FEW_SHARE * kernels)


def judge(step: StepRecord, usual: int, stray: bool = False) -> Ruling:
    """The verdict of a step.

    Args:
        step: the step.
        usual: as in `rule`.
        stray: whether the trace has graph launches in no step: one of them may be this step's.
    """
    if not step.whole:
        return Ruling(Verdict.UNKNOWN, "the step is cut off")
    if step.captures:
        return Ruling(Verdict.CAPTURE)
    if step.unexplained:
        return Ruling(
            Verdict.UNKNOWN, f"{step.unexplained} graph activities were launched by a call that is no graph launch"
        )
    graphs, loose, side = step.graph_launches, step.loose_launches, False
    if not graphs and (step.side_graph_launches or not loose):
        graphs, loose, side = step.side_graph_launches, loose + step.side_loose_launches, True
    if not graphs and not loose:
        failed = f": {step.failures[-1]}" if step.failures else ""
        return Ruling(Verdict.UNKNOWN, f"nothing was launched in it{failed}")
    if not graphs and stray and few(loose, 0):
        return Ruling(Verdict.UNKNOWN, f"it launched {loose} kernels only, and graphs were launched outside of steps")
    if step.graph_kernels is not None and not side:
        return Ruling(rule(graphs, loose, step.graph_kernels, usual))
    least, most = (rule(graphs, loose, kernels, usual) for kernels in (graphs, graphs * LARGEST_GRAPH))
    if least is most:
        return Ruling(least, by_side_thread=side)
    return Ruling(
        Verdict.UNKNOWN,
        f"{loose} kernels ran beside {graphs} graph launch{'es' if graphs > 1 else ''} whose kernels are not "
        f"recorded: it "
        f"may be {least.value} or {most.value}; record in node mode (--cuda-graph-trace=node)",
        side,
    )


def usual_launches(steps: Iterable[StepRecord]) -> dict[str, int]:
    """For each form of label, the commonest number of graph launches in a step (the smaller of two as common).

    Steps with a capture, cut-off steps, and steps with many loose kernels teach nothing.
    """
    counts: dict[str, Counter[int]] = defaultdict(Counter)
    for step in steps:
        graphs = step.graph_launches or (step.side_graph_launches if not step.loose_launches else 0)
        kernels = graphs if step.graph_kernels is None else step.graph_kernels
        if graphs and not step.captures and step.whole and few(step.loose_launches, kernels):
            counts[step.label.form][graphs] += 1
    return {form: min(c, key=lambda graphs: (-c[graphs], graphs)) for form, c in counts.items()}
