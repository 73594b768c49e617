"""Why the CUDA backend cannot be used, or only in part, on machines where it cannot."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from cudagraph_doctor import environment
from cudagraph_doctor.errors import Inconclusive
from cudagraph_doctor.graph.backend import LiveGraph
from cudagraph_doctor.graph.cuda import CudaBackend


def without_gpu_asked(monkeypatch: pytest.MonkeyPatch, *members: str) -> CudaBackend:
    """A backend that was not asked whether it can be used, with a torch whose CUDAGraph has these members."""
    monkeypatch.setattr(environment, "cuda_obstacle", lambda: "")
    monkeypatch.setattr(torch._C, "_CUDAGraph", SimpleNamespace(**dict.fromkeys(members)))
    return CudaBackend()


def live_graph() -> LiveGraph:
    return LiveGraph(0, lambda: None)  # type: ignore[arg-type]  # a weak reference to what is gone


def test_it_says_what_env_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "cuda_obstacle", lambda: "torch sees no GPU")
    assert CudaBackend.why_unusable() == "torch sees no GPU"
    with pytest.raises(Inconclusive, match="torch sees no GPU"):
        CudaBackend()


def test_a_torch_that_gives_out_no_instantiated_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = without_gpu_asked(monkeypatch, "raw_cuda_graph")
    with pytest.raises(Inconclusive, match="does not give out instantiated graphs"), backend.patched(live_graph(), []):
        pytest.fail("patched")
    assert any("parameters heal" in sentence for sentence in backend.not_checked())


def test_a_torch_that_gives_them_out(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = without_gpu_asked(monkeypatch, "raw_cuda_graph", "raw_cuda_graph_exec")
    with pytest.raises(Inconclusive, match="is gone"), backend.patched(live_graph(), []):
        pytest.fail("patched")
    assert not any("parameters heal" in sentence for sentence in backend.not_checked())
