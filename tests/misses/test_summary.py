"""The numbers and the sentence, against what was put in."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from cudagraph_doctor.misses.summary import span, summarize, uncommon_steps
from cudagraph_doctor.traces.labels import Stage
from cudagraph_doctor.traces.steps import Gap, Lane, StepRecord, Trace

if TYPE_CHECKING:
    from tests.misses.conftest import MakeRun, MakeStep

CAPTURED = (1, 2, 4, 8)


def test_span() -> None:
    assert [span(x) for x in ([5, None], [7, 5, 7], [1, 9, 4], [])] == ["5", "5 and 7", "1 to 9", ""]


def test_sentence(step: MakeStep, run: MakeRun) -> None:
    steps = [step(8, 8, gpu_end_ns=i * 1_000_000 + 11_000_000) for i in range(5)]
    steps += [step(n, gpu_end_ns=61_000_000 + i * 1_000_000) for i, n in ((5, 9), (6, 12), (7, 10))]
    steps += [step(4, 4, captures=1), step(4, 4, captures=1)]
    assert summarize(run(steps, CAPTURED))["sentence"] == (
        "10 decode steps: 5 replayed, 3 eager because batch 9 to 12 is above the largest bucket 8 (61 ms instead "
        "of 11), 2 captured in the step."
    )


@pytest.mark.parametrize(
    ("batches", "words"),
    [
        ([(3, 4)], "1 decode step: 1 replayed."),
        ([(3, None)], "1 decode step: 0 replayed, 1 eager although graphs were captured: none was ever launched."),
    ],
)
def test_short_sentences(batches: list[tuple[int, int | None]], words: str, step: MakeStep, run: MakeRun) -> None:
    assert summarize(run([step(*pair) for pair in batches], CAPTURED))["sentence"] == words


def test_piecewise_and_open_steps_are_told(step: MakeStep, run: MakeRun) -> None:
    pieces = {"graph_launches": 20, "graph_kernels": 120, "loose_launches": 30}
    judged = run([step(3, 4), step(3, 4, **pieces)], CAPTURED, expect="piecewise")
    assert summarize(judged)["sentence"] == "2 decode steps: 2 replayed (1 of them piecewise)."
    judged = run([step(None, 4, stage=Stage.UNKNOWN), step(None, stage=Stage.UNKNOWN)], CAPTURED)
    assert summarize(judged)["sentence"] == "2 steps: 1 replayed, 1 eager (decode or prefill: no label says)."
    assert summarize(judged)["hit_rate"]["by_steps"] == 0.5 and summarize(judged)["hit_rate"]["at_most"] == 1.0


def test_updates_are_told_though_the_steps_are_replays(step: MakeStep, run: MakeRun) -> None:
    judged = run([step(3, 4, updates=1), step(3, 4)], CAPTURED)
    assert summarize(judged)["sentence"] == "2 decode steps: 2 replayed, 1 of these with an exec update."


def test_only_prefill(step: MakeStep, run: MakeRun) -> None:
    numbers = summarize(run([step(3, stage=Stage.PREFILL)]))
    assert numbers["sentence"] == "No decode step in 1 steps."
    assert numbers["hit_rate"] == {"by_steps": None, "at_most": None, "by_time": None}


def test_hit_rate_by_time(step: MakeStep, run: MakeRun) -> None:
    judged = run([step(3, 4), step(3), step(4, 4), step(4, 4)], CAPTURED)
    assert summarize(judged)["hit_rate"]["by_steps"] == 0.75
    assert summarize(judged)["hit_rate"]["by_time"] == 0.75  # all of them take as long here


def test_padding(step: MakeStep, run: MakeRun) -> None:
    numbers = summarize(run([step(3, 4), step(5, 8), step(8, 8)], CAPTURED))
    assert numbers["padding"] == {
        "steps_known": 3,
        "steps_unknown": 0,
        "rows": 4,
        "share": 0.2,
        "gpu_ms_estimated": round(0.1 * (1 / 4 + 3 / 8), 3),
    }
    table = {row["bucket"]: row for row in numbers["buckets"]["table"]}
    assert numbers["buckets"]["never_used"] == [1, 2]
    assert (table[8]["steps"], table[8]["sizes"], table[8]["padding_share"]) == (2, "5 and 8", 0.1875)


def test_launch_tax(step: MakeStep, run: MakeRun) -> None:
    tax = summarize(run([step(3, 4), step(9)], CAPTURED))["launch_tax"]
    assert (tax["replayed"]["submit_ms"], tax["replayed"]["gpu_ms"]) == (0.01, 0.1)
    assert tax["sentence"] == (
        "the replayed step takes 0.01 ms to submit for 0.1 ms of GPU work; the eager step takes 0.4 ms to submit for "
        "0.4 ms of GPU work; in an eager step the GPU waits 20% of the time"
    )
    busy = summarize(run([step(9, gpu_busy_ns=490_000)]))["launch_tax"]["sentence"]
    assert busy.endswith("the GPU was busy 98% of an eager step anyway, so graphs bring little there")


def test_gap(step: MakeStep) -> None:
    from cudagraph_doctor.misses.judged import Demands, judge_all

    trace = Trace("t", "nsys", "v", "node", "x", (Lane("rank 0", "t"),), (step(3, 4),))
    trace = Trace(
        **{f: getattr(trace, f) for f in trace.__slots__} | {"gaps": (Gap(0, 2, 1_000_000, 600_000, 0, 100_000, 0, 0),)}
    )
    [gap] = summarize(judge_all([trace], Demands()))["gap_between_replays"]
    assert (gap["mean_ms"], gap["held_by"]) == (0.5, "copies")
    assert gap["shares"]["copies"] == 0.6 and gap["shares"]["Python"] == 0.3


def test_ranks(step: MakeStep, run: MakeRun) -> None:
    steps = [step(3, 4, named=True, lane=lane) for _ in range(4) for lane in (0, 1)]
    steps += [step(3, 4, named=True, lane=0), step(3, 8, named=True, lane=1, last_call_ns=4_900_000)]
    numbers = summarize(run(steps, CAPTURED))
    assert numbers["ranks_apart"] == [{"step": 4, "ranks": {"rank 0": "FULL 4", "rank 1": "FULL 8"}}]
    assert numbers["straggler"] is None
    slow = [step(3, 4, lane=lane, last_call_ns=10_000_000_000 if lane else None) for _ in range(2) for lane in (0, 1)]
    assert summarize(run(slow, CAPTURED))["straggler"] is None  # the other one has no times
    slow = []
    for lane in (0, 1, 2):
        for _ in range(3):
            made = step(3, 4, lane=lane)
            end = (made.first_call_ns or 0) + (50_000 if lane == 1 else 10_000)
            slow.append(type(made)(**{f: getattr(made, f) for f in made.__slots__} | {"last_call_ns": end}))
    straggler = summarize(run(slow, CAPTURED))["straggler"]
    assert (straggler["lane"], straggler["factor"], straggler["others_ms"]) == ("rank 1", 5.0, 0.01)


def test_overlap_is_the_median(step: MakeStep, run: MakeRun) -> None:
    judged = run([step(3, 4, overlap=0.2), step(3, 4, overlap=0.8), step(3, 4, overlap=0.7), step(3, 4)])
    assert summarize(judged)["overlap_of_streams"] == 0.7


def test_ranks_are_compared_in_the_steps_that_all_have(step: MakeStep, run: MakeRun) -> None:
    def numbered(number: int | None, bucket: int, lane: int) -> StepRecord:
        made = step(3, bucket, named=True, lane=lane)
        return dataclasses.replace(made, label=dataclasses.replace(made.label, number=number))

    steps = [numbered(i, 4, lane) for i in range(3) for lane in (0, 1)] + [numbered(3, 8, 0), numbered(4, 8, 0)]
    steps += [numbered(4, 4, 1)]
    judged = run(steps, CAPTURED)
    assert [apart["step"] for apart in summarize(judged)["ranks_apart"]] == [4]
    assert uncommon_steps(judged) == 1
    uncounted = run([dataclasses.replace(s, label=dataclasses.replace(s.label, number=None)) for s in steps], CAPTURED)
    assert summarize(uncounted)["ranks_apart"] == []  # which step is which cannot be told
    assert uncommon_steps(uncounted) == len(steps)
    assert uncommon_steps(run([step(3, 4)], CAPTURED)) == 0
