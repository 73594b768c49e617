"""Calling the driver: errors told apart, and the two generations of cuda-bindings."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cudagraph_doctor.graph import driver
from cudagraph_doctor.graph.driver import (
    Allocation,
    DriverError,
    allocation_at,
    call,
    capture_of,
    capture_status,
    edges_of,
)
from cudagraph_doctor.graph.illegal import CaptureStatus


def use(monkeypatch: pytest.MonkeyPatch, **functions: Any) -> None:
    monkeypatch.setattr(driver, "bindings", lambda: SimpleNamespace(**functions))


def test_results_without_the_status(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, none=lambda: (0,), one=lambda: (0, "a"), two=lambda x: (0, x, "b"))
    assert (call("none"), call("one"), call("two", "a")) == (None, "a", ("a", "b"))


def test_errors_carry_call_and_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise RuntimeError('Function "missing" not found')

    use(monkeypatch, fails=lambda: (900, None), missing=missing)
    for name, code, words in [("fails", 900, "fails: 900"), ("missing", None, "not found"), ("gone", None, "version")]:
        with pytest.raises(DriverError, match=words) as caught:
            call(name)
        assert caught.value.code == code


def test_edges_of_either_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, cuGraphGetEdges=lambda graph, n: (0, [1, 2][:n], [2, 3][:n], ["data"] * n, 2))
    assert edges_of(7) == [(1, 2), (2, 3)]
    use(
        monkeypatch,
        cuGraphGetEdges=lambda graph, n: (918, [], [], 0),  # CUDA_ERROR_LOSSY_QUERY
        cuGraphGetEdges_v2=lambda graph, n: (0, [1][:n], [2][:n], ["data"] * n, 1),
    )
    assert edges_of(7) == [(1, 2)]
    use(monkeypatch, cuGraphGetEdges=lambda graph, n: (0, [], [], [], 0))
    assert edges_of(7) == []


@pytest.mark.parametrize("name", ["cuStreamGetCaptureInfo", "cuStreamGetCaptureInfo_v3"])
def test_the_capture_of_a_stream(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    use(monkeypatch, **{name: lambda stream: (0, stream, 5, "graph", [], [], 0)})
    assert capture_of(1) == (5, "graph") and capture_of(0) is None and capture_of(2) is None


def test_the_status_of_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, cuStreamGetCaptureInfo=lambda stream: (0, stream, 5, "graph", [], [], 0))
    assert [capture_status(n) for n in range(3)] == list(CaptureStatus)
    use(monkeypatch, cuStreamGetCaptureInfo=lambda stream: (906, None))
    assert capture_status(0) is CaptureStatus.NONE
    use(monkeypatch, cuStreamGetCaptureInfo=lambda stream: (1, None))
    with pytest.raises(DriverError):
        capture_status(0)


def test_memory_that_the_driver_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("MEMORY_TYPE", "RANGE_START_ADDR", "RANGE_SIZE")
    attributes = SimpleNamespace(**{f"CU_POINTER_ATTRIBUTE_{name}": name for name in names})
    known = {100: (2, 96, 64), 300: (1, 300, 8)}

    def get(attribute: str, address: int) -> tuple[int, int]:
        return (0, known[address][names.index(attribute)]) if address in known else (1, 0)

    use(monkeypatch, CUpointer_attribute=attributes, cuPointerGetAttribute=get)
    assert allocation_at(100) == Allocation(False, 96, 64)
    assert allocation_at(300) == Allocation(True, 300, 8)
    assert allocation_at(500) is None
