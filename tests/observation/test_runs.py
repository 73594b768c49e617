"""Who broke a capture, from what CUPTI and the hooks noted: a made-up CUPTI over the emulated backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from cudagraph_doctor.graph.emulated import EmulatedBackend
from cudagraph_doctor.graph.illegal import Kind
from cudagraph_doctor.observation import runs
from cudagraph_doctor.observation.model import Observation, Refusal, ToldBy
from cudagraph_doctor.observation.observe import Observer
from cudagraph_doctor.progress import Silent
from tests.observation.conftest import Player

DEVICE = "cpu:0"


class Cuda(EmulatedBackend):
    """Emulated, with a CUDA whose calls fail as they are told to."""

    name = "cuda"

    def __init__(self) -> None:
        super().__init__()
        self.heard: Callable[[str, int], None] | None = None

    @contextmanager
    def failing_calls(self, heard: Callable[[str, int], None]) -> Iterator[None]:
        self.heard = heard
        yield
        self.heard = None

    @property
    def capture(self) -> Any:
        return self._device.capture


_BINDINGS: dict[str, Any] = {"__name__": "cuda.bindings.runtime"}
exec(
    """
def fail(cuda, name, code):
    if cuda.heard:
        cuda.heard(name, code)
    return cuda.capture.fail(code, name)
""",
    _BINDINGS,
)
fail: Callable[[Cuda, str, int], RuntimeError] = _BINDINGS["fail"]
"""A call of CUDA fails; what torch would raise. No line of the user's is in it."""


class InGlobalMode(Player):
    error_mode = "global"


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cuda]:
    made = Cuda()
    monkeypatch.setattr(runs, "failing_calls", made.failing_calls)
    with made.installed():
        yield made


def seen(cuda: Cuda, body: Callable[[], object]) -> Observation:
    return Observer(lambda opened: InGlobalMode(body), cuda, Silent()).observe()


def only(found: Observation) -> Refusal:
    [refusal] = found.refusals
    assert refusal.operation is not None
    return refusal


@pytest.mark.parametrize(
    ("call", "kind", "detail"),
    [
        ("cudaMalloc", Kind.ALLOCATION, ""),
        ("cudaDeviceSynchronize", Kind.LIBRARY_CALL, "synchronisation"),
        ("cudaStreamQuery", Kind.LIBRARY_CALL, "query"),
    ],
)
def test_a_librarys_call_whose_error_is_ignored(cuda: Cuda, call: str, kind: Kind, detail: str) -> None:
    x = torch.ones(2, device=DEVICE)

    def body() -> None:
        x.add_(1)
        if cuda.capture is not None:
            fail(cuda, call, 900)
        x.mul_(2)

    refusal = only(seen(cuda, body))
    # torch only finds the capture broken (901): the call's own code is told
    assert (refusal.told_by, refusal.api, refusal.code) == (ToldBy.CUPTI, call, 900)
    assert refusal.operation and (refusal.operation.name, refusal.operation.kind) == (call, kind)
    assert refusal.operation.detail == detail
    assert refusal.operation.location and refusal.operation.location.code == "fail(cuda, call, 900)"


def test_a_call_that_only_found_the_capture_broken_is_no_cause(cuda: Cuda) -> None:
    x = torch.ones(2, device=DEVICE)

    def body() -> None:
        if cuda.capture is not None:
            cuda.heard("cudaLaunchKernel", 901)  # type: ignore[misc]
            fail(cuda, "cudaFree", 900)
        x.mul_(2)

    refusal = only(seen(cuda, body))
    assert (refusal.api, refusal.code) == ("cudaFree", 900)


def test_an_operator_keeps_its_name_and_gets_the_call(cuda: Cuda) -> None:
    x = torch.ones(2, device=DEVICE)

    def body() -> None:
        if cuda.capture is not None:
            cuda.heard("cudaStreamIsCapturing", 906)  # type: ignore[misc]
            cuda.heard("cudaEventQuery", 907)  # type: ignore[misc]
        if cuda.heard:
            _ = cuda.heard("cudaStreamSynchronize", 900), x.sum().item()

    refusal = only(seen(cuda, body))
    assert refusal.operation and refusal.operation.name == "Tensor.item"
    assert (refusal.told_by, refusal.api, refusal.code) == (ToldBy.CUPTI, "cudaStreamSynchronize", 900)


def test_torchs_own_refusal_comes_from_no_call(cuda: Cuda) -> None:
    x, host = torch.ones(2, device=DEVICE), torch.ones(2)

    def body() -> None:
        if cuda.heard:
            cuda.heard("cudaEventQuery", 907)
        x.copy_(host)

    refusal = only(seen(cuda, body))
    assert refusal.operation and refusal.operation.name == "aten.copy_.default"
    assert (refusal.told_by, refusal.api, refusal.code) == (ToldBy.CALL, "", None)


def test_a_fork_that_is_not_joined_is_told_by_the_ledger(cuda: Cuda) -> None:
    x, side = torch.ones(2, device=DEVICE), torch.cuda.Stream()

    def body() -> None:
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            x.add_(1)
        if cuda.heard:
            cuda.heard("cudaStreamEndCapture", 904)  # in truth later

    refusal = only(seen(cuda, body))
    assert refusal.told_by is ToldBy.LEDGER and (refusal.api, refusal.code) == ("cudaStreamEndCapture", 904)
    assert refusal.operation and refusal.operation.name == "Stream.wait_stream"


@pytest.fixture
def allocating(cuda: Cuda) -> Iterator[tuple[Any, torch.cuda.Stream]]:
    """An operator that needs new memory on a stream that is not captured, and that stream."""
    side = torch.cuda.Stream()
    library = torch.library.Library("runs_test", "FRAGMENT")
    for name in ("first", "second"):
        library.define(f"{name}(Tensor x) -> Tensor")

        def run(x: torch.Tensor) -> torch.Tensor:
            if cuda.capture is not None and torch.cuda.current_stream() == side:
                raise fail(cuda, "cudaMalloc", 900)
            return x * 2

        library.impl(name, run, "CPU")
    yield torch.ops.runs_test, side
    library._destroy()


def test_memory_for_a_stream_outside_of_the_capture(cuda: Cuda, allocating: tuple[Any, torch.cuda.Stream]) -> None:
    operators, side = allocating
    x = torch.ones(2, device=DEVICE)

    def within() -> None:
        operators.second(operators.first(x))

    def body() -> None:
        with torch.cuda.stream(side):
            within()

    found = seen(cuda, body)
    refusal = only(found)
    assert refusal.operation and refusal.operation.kind is Kind.OUTSIDE_CAPTURE and refusal.api == "cudaMalloc"
    assert refusal.operation.location and refusal.operation.location.code == "within()"
    assert "allocator" in refusal.operation.detail
    assert found.complete and (found.empty, found.outside) == ((), ())  # told by the refusal


def test_what_a_compiler_was_about(cuda: Cuda) -> None:
    scope: dict[str, Any] = {"__name__": "torch._inductor.runtime.benchmarking", "cuda": cuda, "fail": fail}
    exec("def benchmark():\n    if cuda.capture is not None: raise fail(cuda, 'cudaDeviceSynchronize', 900)\n", scope)
    assert only(seen(cuda, scope["benchmark"])).compiler == "torch.compile"
