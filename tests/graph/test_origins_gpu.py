"""Who launched a node, from a watched capture of a small model."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
import torch

from cudagraph_doctor.graph import cupti
from cudagraph_doctor.graph.model import CapturedGraph, Origin
from cudagraph_doctor.graph.names import readable
from cudagraph_doctor.graph.origins import attach

pytest.importorskip("triton", reason="needs Triton, and with it a GPU")
import triton
import triton.language as tl

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")]


def twice(x, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


twice_kernel = triton.jit(twice)


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.up(x)  # up
        twice_kernel[(1,)](y, y.numel(), BLOCK=1024)
        return torch.relu(y)  # relu


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([Layer(), Layer()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x.sum()


def line_of(text: str) -> int:
    with open(__file__) as source:
        return next(number for number, line in enumerate(source, 1) if text in line)


@pytest.fixture
def without_cupti(monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable() -> None:
        raise cupti.Unavailable("nsys has it")

    monkeypatch.setattr(cupti, "_api", unavailable)


@pytest.fixture
def with_cupti() -> None:
    if importlib.util.find_spec("cupti") is None:
        pytest.skip("needs cupti-python")


def traced_model(gpu: Any) -> tuple[CapturedGraph, str]:
    """The model's graph with its origins, and why the Triton kernels have no line."""
    model, x = Model().cuda(), torch.randn(8, 64, device="cuda")
    with torch.no_grad():
        _, live = gpu.capture(lambda: model(x))
        judged = gpu.read(live, x=x)
        (trace,) = gpu.backend.trace_origins(lambda: gpu.capture(lambda: model(x), warm=False), {"model": model})
    graph = attach(judged, trace)
    for node in graph.nodes:
        print(node.index, readable(node.name), node.origin)
    return graph, trace.no_lines


def test_line_operator_and_module_of_each_node(gpu: Any, without_cupti: None) -> None:
    graph, no_lines = traced_model(gpu)
    assert no_lines == "nsys has it"
    assert all(node.origin for node in graph.nodes)
    origins = [node.origin for node in graph.nodes if node.origin and node.origin.location]
    where = {(origin.module, origin.operator) for origin in origins}
    assert {("model.layers.0.up", "aten.addmm.default"), ("model.layers.1", "aten.relu.default")} <= where
    assert ("model", "aten.sum.default") in where
    lines = {origin.operator: origin.location.line for origin in origins if origin.location}
    assert lines["aten.addmm.default"] == line_of("# up") and lines["aten.relu.default"] == line_of("# relu")
    raw = [node.origin for node in graph.nodes if node.name == "twice"]
    assert raw == [Origin(module="model.layers.0"), Origin(module="model.layers.1")]


def test_cupti_tells_the_line_of_a_launch_without_the_dispatcher(gpu: Any, with_cupti: None) -> None:
    graph, no_lines = traced_model(gpu)
    assert no_lines == ""
    raw = [node.origin for node in graph.nodes if node.name == "twice" and node.origin]
    assert [(origin.module, origin.operator) for origin in raw] == [("model.layers.0", ""), ("model.layers.1", "")]
    assert [origin.location and origin.location.line for origin in raw] == [line_of("twice_kernel[(1,)]")] * 2
    assert all(node.origin and node.origin.operator for node in graph.nodes if node.name != "twice")


def test_several_graphs_in_one_trace(gpu: Any) -> None:
    x = torch.ones(4, device="cuda")

    def capture() -> None:
        gpu.capture(lambda: x.mul(2).add(1), warm=False)
        gpu.capture(lambda: x.sigmoid(), warm=False)

    first, second = gpu.backend.trace_origins(capture)
    assert [span.origin.operator for span in first.spans] == ["aten.mul.Tensor", "aten.add.Tensor"]
    assert [span.origin.operator for span in second.spans] == ["aten.sigmoid.default"]
