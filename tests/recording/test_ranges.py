"""Labels: what the target opens is seen and annotated; ours are added only where there are none."""

from __future__ import annotations

from collections.abc import Callable

import nvtx
import pytest
import torch

from cudagraph_doctor.recording.ranges import Ranges


def names(ranges: Ranges, body: Callable[[], object]) -> list[str]:
    """Names of torch.profiler annotations that `body` left."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler, ranges.installed():
        body()
    return [event.name for event in profiler.events() if not event.name.startswith(("aten", "cuda"))]


def labelled_by_itself() -> None:
    with nvtx.annotate("decode step=0 bs=3 bucket=4"), nvtx.annotate("inner"):
        torch.zeros(1)


def test_nvtx_becomes_an_annotation() -> None:
    assert names(Ranges(annotate=True, add=True), labelled_by_itself) == ["decode step=0 bs=3 bucket=4", "inner"]
    assert names(Ranges(annotate=False, add=True), labelled_by_itself) == []


def test_as_a_decorator() -> None:
    def body() -> None:
        def step() -> int:
            return 7

        assert nvtx.annotate("decode step=0 bs=1")(step)() == 7

    assert names(Ranges(annotate=True, add=True), body) == ["decode step=0 bs=1"]


def test_a_step_gets_a_label_only_if_the_target_gives_none() -> None:
    ranges = Ranges(annotate=True, add=True)

    def unlabelled() -> None:
        with ranges.step(1, 3, 4):
            torch.zeros(1)
        with ranges.step(2, 3, None):
            torch.zeros(1)

    assert names(ranges, unlabelled) == ["decode step=1 bs=3 bucket=4", "decode step=2 bs=3"]

    def labelled() -> None:
        labelled_by_itself()
        with ranges.step(1, 3, 4):
            labelled_by_itself()

    assert "decode step=1 bs=3 bucket=4" not in names(ranges, labelled)
    assert names(Ranges(annotate=True, add=False), lambda: None) == []


def test_no_ranges() -> None:
    ranges = Ranges(annotate=True, add=False)

    def body() -> None:
        with ranges.step(1, 3, 4):
            torch.zeros(1)

    assert names(ranges, body) == []


def test_captures_get_a_label_unless_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda.CUDAGraph, "capture_begin", lambda graph, *a, **k: None, raising=False)
    monkeypatch.setattr(torch.cuda.CUDAGraph, "capture_end", lambda graph: None, raising=False)

    def capture() -> None:
        torch.cuda.CUDAGraph.capture_begin(None)  # type: ignore[arg-type]
        torch.cuda.CUDAGraph.capture_end(None)  # type: ignore[arg-type]

    def labelled() -> None:
        with nvtx.annotate("capture bucket=4"):
            capture()

    assert names(Ranges(annotate=True, add=True), capture) == ["capture"]
    assert names(Ranges(annotate=True, add=True), labelled) == ["capture bucket=4"]
    assert names(Ranges(annotate=True, add=False), capture) == []


def test_everything_is_put_back() -> None:
    kept = (nvtx.annotate, torch.cuda.nvtx.range_push, torch.cuda.CUDAGraph.capture_begin)
    with Ranges(annotate=False, add=True).installed():
        assert nvtx.annotate is not kept[0]
    assert (nvtx.annotate, torch.cuda.nvtx.range_push, torch.cuda.CUDAGraph.capture_begin) == kept
