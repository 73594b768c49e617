"""What only a real capture can show: the exact call of CUDA, and what libraries do by themselves."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from cudagraph_doctor.graph import cupti
from cudagraph_doctor.graph.cuda import CudaBackend
from cudagraph_doctor.graph.illegal import CaptureStatus, Kind
from cudagraph_doctor.graph.recovery import free_generators
from cudagraph_doctor.observation.model import Observation, ToldBy
from cudagraph_doctor.observation.observe import Observer
from cudagraph_doctor.progress import Silent
from tests.observation.conftest import Player

pytestmark = pytest.mark.gpu
TOOLS = ["with CUPTI", "without CUPTI"]


class Warmed(Player):
    """Runs the body once before it captures it."""

    error_mode = "global"

    def capture(self) -> None:
        self.body()
        torch.cuda.synchronize()
        super().capture()


@pytest.fixture
def backend() -> Iterator[CudaBackend]:
    if reason := CudaBackend.why_unusable():
        pytest.skip(reason)
    made = CudaBackend()
    before = torch.cuda.current_stream()
    with made.installed():
        yield made
    torch.cuda.set_stream(before)


@pytest.fixture(params=TOOLS)
def tool(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Hides CUPTI, or skips where there is none."""
    if request.param == "without CUPTI":

        def hidden() -> Any:
            raise cupti.Unavailable("it is hidden")

        monkeypatch.setattr(cupti, "_api", hidden)
    elif importlib.util.find_spec("cupti") is None:
        pytest.skip("needs cupti-python")
    return str(request.param)


def seen(body: Any, backend: CudaBackend) -> Observation:
    return Observer(lambda opened: Warmed(body), backend, Silent()).observe()


def test_a_host_read_and_who_told(backend: CudaBackend, tool: str) -> None:
    x = torch.ones(4, device="cuda")
    [refusal] = seen(lambda: x.sum().item(), backend).refusals
    assert refusal.code == 900 and refusal.operation and refusal.operation.name == "Tensor.item"
    assert refusal.operation.kind is Kind.HOST_READ
    assert "previous error" in refusal.plain
    if tool == "with CUPTI":
        assert (refusal.told_by, refusal.api) == (ToldBy.CUPTI, "cudaStreamSynchronize")
    else:
        assert (refusal.told_by, refusal.api) == (ToldBy.CALL, "")


def test_a_kernel_of_triton_that_the_capture_leaves_out(backend: CudaBackend, tool: str) -> None:
    from cudagraph_doctor.reference_models.triton_kernels import scale_rows

    x, out, total = torch.ones(4, device="cuda"), torch.zeros(4, device="cuda"), torch.zeros((), device="cuda")

    def body() -> None:
        out.copy_(x)
        if not torch.cuda.is_current_stream_capturing():
            scale_rows[(1,)](out, x, 3.0, 4, BLOCK=16)
        total.copy_(out.sum())

    found = seen(body, backend)
    assert found.refusals == () and found.left_out.not_compared == "", found
    if tool == "with CUPTI":
        assert len(found.left_out.harmful) == 1, (found.instrument, found.left_out)
        [operation] = found.left_out.harmful
        assert operation.name == "scale_rows" and operation.location
        assert operation.location.code == "scale_rows[(1,)](out, x, 3.0, 4, BLOCK=16)"
    else:
        assert found.left_out.harmful == () and found.instrument, (found.instrument, found.left_out)


def test_a_call_whose_error_is_ignored(backend: CudaBackend, tool: str) -> None:
    from cuda.bindings import runtime

    x = torch.ones(4, device="cuda")

    def body() -> None:
        x.add_(1)
        _, address = runtime.cudaMalloc(1 << 20)
        x.mul_(1)
        if address:
            runtime.cudaFree(address)

    found = seen(body, backend)
    refusal = found.refusals[0]
    assert refusal.operation and refusal.operation.location
    if tool == "with CUPTI":
        assert (refusal.api, refusal.operation.kind) == ("cudaMalloc", Kind.ALLOCATION)
        assert "cudaMalloc" in refusal.operation.location.code
    else:
        assert refusal.told_by is ToldBy.STATUS and refusal.operation.location.code == "x.mul_(1)"
        assert "after line" in refusal.operation.detail
    assert not found.complete


def test_a_fork_that_is_not_joined(backend: CudaBackend, tool: str) -> None:
    x, side = torch.ones(4, device="cuda"), torch.cuda.Stream()

    def body() -> None:
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            x.add_(1)

    [refusal] = seen(body, backend).refusals
    assert (refusal.code, refusal.told_by) == (904, ToldBy.LEDGER)
    assert refusal.operation and refusal.operation.name == "Stream.wait_stream"


def test_the_status_of_a_stream(backend: CudaBackend) -> None:
    x, asked = torch.ones(4, device="cuda"), []

    def ask() -> None:
        asked.append(backend.capture_status(torch.cuda.current_stream().cuda_stream))
        asked.append(backend.capture_status(0))

    ask()
    stream = torch.cuda.current_stream()
    with pytest.raises(RuntimeError), torch.cuda.graph(torch.cuda.CUDAGraph()):
        x.add_(1)
        ask()
        with pytest.raises(RuntimeError):
            x.sum().item()
        asked.append(backend.capture_status(torch.cuda.current_stream().cuda_stream))
    torch.cuda.set_stream(stream)
    free_generators()  # other tests draw
    none, active, broken = CaptureStatus
    assert asked == [none, none, active, none, broken]


def test_who_asks_in_a_dry_run_is_told_that_it_captures(backend: CudaBackend) -> None:
    from torch.cuda import is_current_stream_capturing as by_name

    answers: list[tuple[bool, bool]] = []
    found = seen(lambda: answers.append((by_name(), torch.cuda.is_current_stream_capturing())), backend)
    # a warm-up and the body: a plain capture, the dry run, a watched capture, and the dry run for host values; then,
    # for what is left out, once told that it captures and once told the truth
    told, truth = [(False, False), (True, True)], [(False, False), (False, False)]
    assert answers == [*told * 4, *told, *truth] and found.refusals == ()


def test_the_dry_run_costs_no_more_than_ten_times_the_eager_step(backend: CudaBackend) -> None:
    import time

    x = torch.ones(64, 64, device="cuda")
    rows = torch.arange(8, device="cuda")
    seconds: list[float] = []

    def body() -> None:
        torch.cuda._sleep(1)
        started = time.perf_counter()
        for _ in range(200):
            y = (x @ x).relu()
            x[rows] = y[:8]
            x.copy_(x.softmax(-1))
        seconds.append(time.perf_counter() - started)

    for _ in range(3):
        body()
    eager = min(seconds)
    seconds.clear()
    seen(body, backend)
    watched = seconds[3]  # warm-up and body of the plain capture, then of the dry run
    print(f"eager {eager:.4f} s, watched {watched:.4f} s, {watched / eager:.1f} times")
    assert watched <= 10 * eager
