"""Steps without labels: by waits, by launches where waits do not tell, captures where they belong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from cudagraph_doctor.misses.judged import Demands, judge_all
from cudagraph_doctor.traces.collect import collect
from cudagraph_doctor.traces.sniff import Form
from cudagraph_doctor.traces.steps import Trace

if TYPE_CHECKING:
    from tests.traces.made_up import MadeUp

BY_WAITS = "no labels: cut where the host waits for the GPU"
BY_LAUNCHES = "no labels: cut at each graph launch"


def found(loop: MadeUp, folder: Path) -> tuple[str, str]:
    trace: Trace = collect(loop.nsys(folder / "t"), Form.SQLITE)
    return trace.steps_from, " ".join(step.verdict.value for step in judge_all([trace], Demands()).steps)


def test_by_waits(made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    loop = made_up()
    graph = loop.capture(40)
    loop.step(None, loose=45)  # before the first replay: a prefill, a warm-up
    for _ in range(5):
        loop.step(None, graph, copies=2)
    loop.step(None, loose=45)
    assert found(loop, tmp_path) == (BY_WAITS, "FULL FULL FULL FULL FULL EAGER")


def test_a_loop_that_never_waits(made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    loop = made_up()
    graph = loop.capture(40)
    for _ in range(5):
        loop.step(None, graph, wait=False)
    assert found(loop, tmp_path) == (BY_LAUNCHES, "FULL FULL FULL FULL FULL")


def test_a_loop_that_waits_many_times_a_step(made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    loop = made_up()
    graph = loop.capture(40)
    for _ in range(5):
        for _ in range(3):
            loop.launch()
            loop.wait()
        loop.step(None, graph)
    assert found(loop, tmp_path) == (BY_LAUNCHES, "FULL FULL FULL FULL FULL")


def test_a_capture_belongs_to_the_step_that_it_delays(made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    loop = made_up()
    graphs = [loop.capture(40)]
    for i in range(6):
        if i == 3:
            graphs.append(loop.capture(40))
        loop.step(None, graphs[-1])
    assert found(loop, tmp_path) == (BY_WAITS, "FULL FULL FULL CAPTURE FULL FULL")


def test_two_threads(made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    loop = made_up()
    graph = loop.capture(40)
    for thread in (4711, 4712):
        loop.thread = thread
        for _ in range(3):
            loop.step(None, graph)
    assert found(loop, tmp_path) == (BY_WAITS, "FULL FULL FULL FULL FULL FULL")


def test_nothing_to_go_by(made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    loop = made_up()
    loop.step(None, loose=45)
    assert found(loop, tmp_path) == ("", "")


def test_same_number_of_steps_with_and_without_labels(made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    loop = made_up()
    graphs = {bucket: loop.capture(40, bucket) for bucket in (8, 4)}
    for i in range(10):
        loop.decode(i, 3 + i % 5, None, graphs[4 if i % 5 < 2 else 8])
    labelled = found(loop, tmp_path)
    loop.ranges.clear()
    assert found(loop, tmp_path)[1] == labelled[1]
