"""Time covered by overlapping intervals, and how far two streams overlap."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cudagraph_doctor.traces import busy
from cudagraph_doctor.traces.collect import collect
from cudagraph_doctor.traces.sniff import Form

if TYPE_CHECKING:
    from tests.traces.made_up import MadeUp


def test_union() -> None:
    assert busy.union([(0, 10), (5, 15), (20, 30), (22, 25), (30, 31)]) == 26
    assert busy.union([]) == 0


def overlapping(loop: MadeUp) -> None:
    """Ten steps; the second stream's 40 µs lie half inside the first one's 100 µs."""
    for i in range(10):
        start = loop.now
        call = loop.call("cudaLaunchKernel_v7000")
        loop.gpu_free = call.end
        loop.run(call, 100_000, stream=7)
        call = loop.call("cudaLaunchKernel_v7000")
        loop.gpu_free -= 20_000
        loop.run(call, 40_000, stream=13)
        loop.wait()
        loop.range_since(start, f"decode step={i} bs=1")


@pytest.mark.parametrize("write", ["nsys", "kineto"])
def test_two_streams(write: str, made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    loop = made_up()
    overlapping(loop)
    path = loop.nsys(tmp_path / "t") if write == "nsys" else loop.kineto(tmp_path / "t")
    for step in collect(path, Form.SQLITE if write == "nsys" else Form.JSON).steps:
        assert (step.streams, step.busy_exact) == (2, True)
        assert step.gpu_busy_ns == pytest.approx(120_000, abs=2000)
        assert step.gpu_idle_ns == pytest.approx(0, abs=2000)
        assert step.overlap == pytest.approx(0.5, abs=0.05)


def test_beyond_the_budget_the_most_it_can_be_is_said(
    made_up: Callable[[], MadeUp], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(busy, "_BUDGET_ROWS", 5)
    loop = made_up()
    overlapping(loop)
    trace = collect(loop.nsys(tmp_path / "t"), Form.SQLITE)
    exact = [step for step in trace.steps if step.busy_exact]
    assert 0 < len(exact) < 10
    assert all(step.gpu_busy_ns is not None and step.gpu_busy_ns >= 120_000 - 2000 for step in trace.steps)
    assert f"streams were not overlaid in {10 - len(exact)} steps" in " ".join(trace.missing)
