"""Histograms: units, assumed ones, those of traces and of simulations."""

from __future__ import annotations

from typing import Any

import pytest

from cudagraph_doctor.audit import workload
from cudagraph_doctor.audit.keys import KeySet, Unit
from cudagraph_doctor.audit.workload import Workload
from cudagraph_doctor.errors import Inconclusive
from cudagraph_doctor.traces.labels import Label, Stage
from cudagraph_doctor.traces.steps import StepRecord, Trace


def trace(*labels: Label) -> Trace:
    return Trace(
        "t", "nsys", "v", "node", "l", steps=tuple(StepRecord(0, i, x, i, i + 1) for i, x in enumerate(labels))
    )


def label(batch: int | None, stage: Stage = Stage.DECODE, **more: Any) -> Label:
    return Label("x", "f", stage, batch=batch, **more)


def test_units() -> None:
    tokens = KeySet("verify", (3, 6), 4, Unit.TOKENS, 3, uniform=True)
    requests = KeySet("verify", (1, 2), 4, Unit.REQUESTS, 3)
    assert Workload({2: 5.0}, Unit.REQUESTS, "").for_keys(tokens) == {6: 5.0}
    assert Workload({6: 5.0, 5: 1.0}, Unit.TOKENS, "").for_keys(tokens) == {6: 5.0, 5: 1.0}
    assert Workload({6: 5.0, 5: 1.0}, Unit.TOKENS, "").for_keys(requests) == {2: 6.0}, "rounded up to whole requests"


def test_assumed() -> None:
    assert workload.assumed(3).steps == {1: 1.0, 2: 1.0, 3: 1.0}


def test_of_traces() -> None:
    found = workload.of_traces(
        [
            trace(label(3), label(3), label(None), label(0), label(9, Stage.PREFILL), label(4, Stage.MIXED)),
            trace(label(7)),
        ]
    )
    assert found.steps == {3: 2.0, 7: 1.0}
    assert (found.unit, found.idle) == (Unit.REQUESTS, 1)
    assert found.not_used == (
        "1 of 5 decode steps of the trace: their labels tell no batch",
        "1 steps of the trace that mix prefill and decode",
    )


def test_of_a_trace_in_tokens() -> None:
    found = workload.of_traces([trace(label(2, tokens=6, in_tokens=True))])
    assert (found.steps, found.unit) == ({6: 1.0}, Unit.TOKENS)


@pytest.mark.parametrize("labels", [(), (label(None),), (label(0),), (label(4, Stage.PREFILL),)])
def test_of_a_trace_that_tells_nothing(labels: tuple[Label, ...]) -> None:
    with pytest.raises(Inconclusive, match="has a label that tells its batch"):
        workload.of_traces([trace(*labels)])


def test_of_arrivals() -> None:
    assert workload.of_arrivals({4: 2.0}, 10, 100, 5).rows == 2
    with pytest.raises(Inconclusive, match="No request arrived"):
        workload.of_arrivals({}, 0.01, 100, 5)
