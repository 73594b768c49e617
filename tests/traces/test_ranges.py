"""Which of nested and repeated ranges are the steps."""

from __future__ import annotations

from cudagraph_doctor.traces.labels import read
from cudagraph_doctor.traces.ranges import Range, steps_of


def a_range(text: str, start: int, end: int, thread: int = 1, process: int = 0) -> Range:
    label = read(text)
    assert label is not None
    return Range(process, thread, start, end, label)


def found(*ranges: Range) -> list[tuple[str, int]]:
    return [(step.label.text, step.start) for step in steps_of(ranges)]


def test_sizes_before_none() -> None:
    steps = steps_of(
        [a_range("execute_context_0(0)_generation_2(2)", 0, 100), a_range("gpu_model_runner: forward", 10, 50)]
    )
    assert [(s.start, s.label.batch) for s in steps] == [(0, 2)]


def test_the_innermost_of_two_with_sizes() -> None:
    execute = a_range("execute_32_context_0(sq0sk0sq)_generation_32(sq32sk5sq)", 0, 100)
    assert found(execute, a_range("step[DECODE bs=32]", 10, 60)) == [("step[DECODE bs=32]", 10)]


def test_what_a_label_leaves_out_is_taken_from_those_around_and_inside() -> None:
    [step] = steps_of([a_range("decode step=3 bs=4", 0, 100), a_range("decode step=3 bs=4 bucket=8", 10, 60)])
    assert (step.start, step.label.bucket) == (0, 8)
    [step] = steps_of([a_range("decode step=3 bs=4", 0, 100), a_range("decode step=3 bs=9 bucket=16", 10, 60)])
    assert step.label.bucket is None  # another batch: not about this step


def test_the_loop_of_torch_profiler_only_if_there_is_nothing_else() -> None:
    loop = a_range("ProfilerStep#1", 0, 100)
    assert found(loop) == [("ProfilerStep#1", 0)]
    assert found(loop, a_range("Decode", 20, 30)) == [("Decode", 20)]


def test_processes_and_threads_apart() -> None:
    assert found(
        a_range("decode step=1 bs=1", 50, 60, process=1),
        a_range("decode step=0 bs=1", 0, 10, process=1),
        a_range("decode step=0 bs=2", 5, 15, thread=2, process=2),
        a_range("decode step=1 bs=2", 8, 12, thread=3, process=2),
    ) == [("decode step=0 bs=1", 0), ("decode step=1 bs=1", 50), ("decode step=0 bs=2", 5), ("decode step=1 bs=2", 8)]
