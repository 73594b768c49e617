"""Reports made up for the tests of the formats: no GPU, no torch."""

from __future__ import annotations

import dataclasses

import pytest

from cudagraph_doctor.findings import (
    Accepted,
    Culprit,
    Finding,
    Gate,
    Location,
    Outcome,
    Proof,
    Report,
    Severity,
    Status,
    Step,
)

FROZEN = Finding(
    "CGD101",
    "`slot_mapping` is not refreshed before the replay: logits: 3 of 4 rows differ. Step 3, 4 rows: healed by writing.",
    Severity.ERROR,
    Proof.CONFIRMED,
    "Copy this step's `slot_mapping` into the captured buffer before each replay.",
    Culprit("input", "slot_mapping", "rows 1 to 3", [16, 32, 48], [17, 33, 49]),
    Location("/app/serving/decode.py", 120, "Runner.run", "graph.replay()", "replayed"),
    (Location("/app/serving/decode.py", 88, "Runner.capture", "with torch.cuda.graph(graph):", "captured"),),
    step=3,
    key="4",
    backend="emulated",
    evidence={
        "kind": "frozen",
        "replayed_against_eager": "logits differ in 3 rows",
        "eager_against_eager": "equal",
        "healed_by": "writing 24 bytes of `slot_mapping`",
        "remedies_tried": 7,
    },
)
ROUNDING = Finding(
    "CGD107", "Graph 4 and eager differ by rounding only.", Severity.NOTE, Proof.MEASURED, "Nothing to do.", key="4"
)
STEPS = (
    Step(0, 1, "1", "clean"),
    Step(1, 1, "1", "clean"),
    Step(0, 4, "4", "clean"),
    Step(1, 3, "4", "finding"),
    Step(2, 4, "4", "note"),
    Step(3, 1, "1", "clean"),
)


def a_report(*outcomes: Outcome, backend: str = "emulated") -> Report:
    """A report around the outcomes."""
    return Report(
        tool={
            "name": "cudagraph-doctor",
            "version": "0.1.0",
            "started": "2026-01-02T03:04:05Z",
            "working_tree": "/app",
        },
        environment={"backend": backend, "backend_reason": "torch 2.13.0+cpu is a build without CUDA"},
        target={"spec": "serving/decode.py:target", "arguments": {"width": "64"}, "fault": "", "twin": False},
        outcomes=outcomes,
    )


@pytest.fixture
def found() -> Report:
    """A finding and a note."""
    return a_report(
        Outcome(
            "diff",
            Status.FOUND,
            not_checked=("Kernels without a CPU form.",),
            checked={"steps": 6, "graphs": 2, "batch sizes": [1, 3, 4]},
            steps=STEPS,
            findings=(FROZEN, ROUNDING),
            rules=("CGD101", "CGD107"),
            seconds=1.25,
        )
    )


@pytest.fixture
def clean() -> Report:
    """Nothing found."""
    return a_report(Outcome("diff", Status.PASSED, checked={"steps": 3}, steps=STEPS[:3], seconds=0.5), backend="cuda")


@pytest.fixture
def gated(found: Report) -> Report:
    """Held to a gate: one finding is known, one ignored, one is left that fails the run."""
    [outcome] = found.outcomes
    known = dataclasses.replace(FROZEN, code="CGD102", accepted=Accepted("known", "baseline.json"))
    ignored = dataclasses.replace(ROUNDING, accepted=Accepted("ignored", "pyproject.toml", "rounding is fine"))
    gate = Gate(
        exit_code=1,
        baseline="baseline.json",
        fixed=("CGD103 unsafe-padding, input x, is gone: it can leave the baseline.",),
        unused=("CGD2 in pyproject.toml (not ours) ignored nothing.",),
        unmet=("diff: 50.0% could be judged, demanded are 90.0%",),
    )
    outcome = dataclasses.replace(outcome, findings=(FROZEN, known, ignored), coverage=0.5)
    return dataclasses.replace(found, outcomes=(outcome,), gate=gate)


@pytest.fixture
def incomplete(found: Report) -> Report:
    """A finding, and another check that did not finish."""
    lost = Outcome(
        "capture",
        Status.ERRORED,
        "A bug in cudagraph-doctor: KeyError.",
        "Report it.",
        traceback="Trace\n",
        location=Location("/app/serving/decode.py", 42, "Runner.step", "x.item()"),
    )
    return a_report(*found.outcomes, lost)
