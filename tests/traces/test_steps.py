"""Times that follow from others: None where one of them was not recorded."""

from __future__ import annotations

from cudagraph_doctor.traces.labels import Label, Stage
from cudagraph_doctor.traces.steps import Gap, StepRecord

LABEL = Label("", "", Stage.DECODE)


def test_times() -> None:
    step = StepRecord(0, 0, LABEL, 0, 9, first_call_ns=2, last_call_ns=5, gpu_start_ns=4, gpu_end_ns=14, gpu_busy_ns=7)
    assert (step.submit_ns, step.gpu_span_ns, step.gpu_idle_ns) == (3, 10, 3)


def test_not_recorded_is_not_zero() -> None:
    step = StepRecord(0, 0, LABEL, 0, 9)
    assert (step.submit_ns, step.gpu_span_ns, step.gpu_idle_ns) == (None, None, None)


def test_what_is_left_of_a_gap_is_python() -> None:
    assert Gap(0, 1, 100, 10, 20, 30, 5, 5).python_ns == 30
    assert Gap(0, 1, 10, 10, 20, 0, 0, 0).python_ns == 0
