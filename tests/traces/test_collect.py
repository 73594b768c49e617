"""What a step did, added up: gaps, side threads, names; and the traces that others made, where they are at hand."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cudagraph_doctor.misses.judged import Demands, judge_all
from cudagraph_doctor.traces.collect import collect
from cudagraph_doctor.traces.labels import Stage
from cudagraph_doctor.traces.sniff import Form, sniff
from cudagraph_doctor.traces.steps import Trace

if TYPE_CHECKING:
    from tests.traces.made_up import MadeUp

OTHERS = Path(os.environ.get("CUDAGRAPH_DOCTOR_TRACES", Path(__file__).parents[3] / "shared" / "traces"))
"""Traces made by others; not part of the project."""


def read(loop: MadeUp, folder: Path) -> Trace:
    return collect(loop.nsys(folder / "t"), Form.SQLITE)


def test_who_holds_the_gap(made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    loop = made_up()
    graph = loop.capture(40)
    for i in range(4):
        loop.step(None)
        loop.decode(i, 1, None, graph, loose=0)
        loop.copy(100_000)
        loop.call("cudaMalloc_v3020", 50_000)
    [gap] = read(loop, tmp_path).gaps
    assert gap.count == 3
    assert gap.copies_ns == 300_000
    assert gap.allocation_ns == 150_000
    assert gap.sync_ns > 0 and gap.launches_ns > 0 and gap.python_ns > 0
    parts = gap.copies_ns + gap.allocation_ns + gap.sync_ns + gap.launches_ns + gap.other_ns + gap.python_ns
    assert parts == gap.total_ns


def test_times_of_a_step(made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    loop = made_up()
    graph = loop.capture(40)
    loop.decode(0, 1, None, graph, loose=2)
    [step] = read(loop, tmp_path).steps
    # two launches of 2 us and one of 8 us, 1 us apart
    assert (step.call_ns, step.submit_ns) == (12_000, 14_000)
    assert step.gpu_busy_ns == 42 * 5_000
    assert (step.streams, step.overlap, step.busy_exact) == (1, None, True)


def test_names_of_loose_kernels(made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    loop = made_up()
    graph = loop.capture(40)
    start = loop.now
    loop.replay(graph)
    for name, times in (("void at::native::add<float>(int)", 2), ("attention", 5)):
        for _ in range(times):
            loop.launch(kernel=name)
    loop.range_since(start, "decode step=0 bs=1")
    assert read(loop, tmp_path).steps[0].loose_names == ("attention", "at::native::add")


def test_side_threads_count_apart(made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    loop = made_up()
    graph = loop.capture(40)
    start, own = loop.now, loop.thread
    loop.launch()
    loop.thread = 4800
    loop.launch()
    loop.replay(graph)
    loop.thread = own
    loop.range_since(start, "decode step=0 bs=1")
    [step] = read(loop, tmp_path).steps
    assert (step.graph_launches, step.loose_launches) == (0, 1)
    assert (step.side_graph_launches, step.side_loose_launches) == (1, 1)


def test_launches_outside_of_steps_are_counted(made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    loop = made_up()
    graph = loop.capture(40)
    loop.decode(0, 1, None, graph)
    loop.launch()
    loop.replay(graph)
    trace = read(loop, tmp_path)
    assert (trace.outside_launches, trace.outside_graph_launches) == (2, 1)


# traces made by others


def others(name: str) -> Trace:
    path = OTHERS / name
    if not path.exists():
        pytest.skip(f"{path} is not there (set CUDAGRAPH_DOCTOR_TRACES)")
    return collect(path, sniff(path))


def test_vllm_full() -> None:
    trace = others("kineto_vllm_full_graph_decode_mi300.json.gz")
    run = judge_all([trace], Demands())
    [step] = trace.steps
    assert [s.verdict.value for s in run.steps] == ["FULL"]
    # 3 hipLaunchKernel, and the hipExtModuleLaunchKernel of the LM head's GEMM
    assert (step.graph_launches, step.graph_kernels, step.loose_launches) == (1, 421, 4)
    assert (step.label.batch, step.label.tokens, step.label.stage) == (32, 32, Stage.DECODE)


def test_vllm_piecewise() -> None:
    trace = others("kineto_vllm_piecewise_mixed_mi300.json.gz")
    run = judge_all([trace], Demands())
    [step] = trace.steps
    assert [(s.verdict.value, s.hit, s.miss) for s in run.steps] == [("PIECEWISE", True, None)]
    # 51 by hipLaunchKernel and hipModuleLaunchKernel, and one hipExtModuleLaunchKernel
    assert (step.graph_launches, step.graph_kernels, step.loose_launches) == (25, 361, 52)
    assert (step.label.batch, step.label.size, step.label.stage) == (37, 8192, Stage.MIXED)


def test_tensorrt_whose_captures_failed() -> None:
    trace = others("nsys2024.2_trt_cugraphlaunch_wsl_cpuonly.sqlite")
    assert [capture.error for capture in trace.captures] == [
        "cuStreamSynchronize returned 900 (not permitted while a stream is capturing)"
    ] * 2
    run = judge_all([trace], Demands())
    assert [(s.verdict.value, s.hit) for s in run.steps] == [("UNKNOWN", False), ("CAPTURE", False)]
    assert all(s.record.failures[-1] == "cuGraphLaunch returned 1 (an argument is not valid)" for s in run.steps)


def test_training_of_two_processes_without_graphs() -> None:
    trace = others("nsys2026.2_fastvideo_train_2gpu_corr_collision.sqlite")
    assert trace.steps == () and trace.facts["graph launches"] == 0
    assert [lane.name for lane in trace.lanes] == ["process 148", "process 149"]
    assert trace.unmatched_labels == 17113
