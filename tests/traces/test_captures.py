"""Capture windows, the graphs that come of them, and what is known of graphs from that."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cudagraph_doctor.traces.collect import collect
from cudagraph_doctor.traces.sniff import Form
from cudagraph_doctor.traces.steps import CaptureRecord

if TYPE_CHECKING:
    from tests.traces.made_up import MadeUp


def captures(loop: MadeUp, folder: Path, mode: str = "graph") -> list[CaptureRecord]:
    return list(collect(loop.nsys(folder / "t", mode=mode), Form.SQLITE).captures)


@pytest.mark.parametrize("mode", ["graph", "node"])
def test_graphs_and_buckets(mode: str, made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    loop = made_up()
    big, small = loop.capture(40, 8), loop.capture(30, label="capture_4_PIECEWISE")
    loop.decode(0, 3, None, small)
    first, second = captures(loop, tmp_path, mode)
    assert (first.bucket, first.kind, first.launches) == (8, "", 40) and str(big) in first.graphs
    assert (second.bucket, second.kind, second.launches) == (4, "PIECEWISE", 30) and str(small) in second.graphs


def test_launches_in_a_capture_run_nothing_and_are_no_eager_launches(
    made_up: Callable[[], MadeUp], tmp_path: Path
) -> None:
    loop = made_up()
    start = loop.now
    loop.capture(40)
    loop.range_since(start, "decode step=0 bs=1")
    [step] = collect(loop.nsys(tmp_path / "t"), Form.SQLITE).steps
    assert (step.captures, step.captured_launches, step.loose_launches) == (1, 40, 0)


def test_the_first_error_is_named(made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    loop = made_up()
    loop.call("cuStreamBeginCapture_v2")
    loop.call("cuStreamSynchronize", result=900)
    loop.call("cuMemcpyHtoDAsync_v2", result=901)
    loop.call("cuStreamEndCapture", result=901)
    loop.decode(0, 1, None, loose=20)
    [capture] = captures(loop, tmp_path)
    assert capture.error == "cuStreamSynchronize returned 900 (not permitted while a stream is capturing)"


def test_a_capture_that_could_not_begin_is_none(made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    loop = made_up()
    loop.call("cudaStreamBeginCapture_v10000", result=1)
    loop.decode(0, 1, None, loose=20)
    assert captures(loop, tmp_path) == []


def test_another_thread_is_not_capturing(made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    loop = made_up()
    loop.call("cudaStreamBeginCapture_v10000")
    own, loop.thread = loop.thread, 4800
    loop.decode(0, 1, None, loose=20)
    loop.thread = own
    loop.call("cudaStreamEndCapture_v10000")
    [step] = collect(loop.nsys(tmp_path / "t"), Form.SQLITE).steps
    assert (step.captures, step.loose_launches) == (0, 20)
