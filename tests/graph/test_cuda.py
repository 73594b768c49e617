"""Why the CUDA backend cannot be used, on machines where it cannot."""

from __future__ import annotations

import pytest
import torch

from cudagraph_doctor.errors import Inconclusive
from cudagraph_doctor.graph import driver
from cudagraph_doctor.graph.cuda import CudaBackend


def pretend_gpu(monkeypatch: pytest.MonkeyPatch, version: str = "13.0") -> None:
    monkeypatch.setattr(torch.version, "cuda", version)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)


def test_a_torch_without_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    assert "built without CUDA" in CudaBackend.why_unusable()
    with pytest.raises(Inconclusive, match="built without CUDA"):
        CudaBackend()


def test_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_gpu(monkeypatch)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert CudaBackend.why_unusable() == "torch sees no CUDA GPU"


@pytest.mark.parametrize(("version", "extra"), [("12.8", "cuda12"), ("13.0", "cuda13")])
def test_no_bindings(monkeypatch: pytest.MonkeyPatch, version: str, extra: str) -> None:
    def missing() -> None:
        raise ModuleNotFoundError("No module named 'cuda'")

    pretend_gpu(monkeypatch, version)
    monkeypatch.setattr(driver, "bindings", missing)
    reason = CudaBackend.why_unusable()
    assert "No module named 'cuda'" in reason and f"pip install 'cudagraph-doctor[{extra}]'" in reason


@pytest.mark.parametrize(
    ("number", "reason"), [(12030, "supports CUDA 12.3; 12.4 is needed"), (12040, ""), (13000, "")]
)
def test_the_drivers_version(monkeypatch: pytest.MonkeyPatch, number: int, reason: str) -> None:
    pretend_gpu(monkeypatch)
    monkeypatch.setattr(driver, "bindings", lambda: None)
    monkeypatch.setattr(driver, "call", lambda name: number)
    assert reason in CudaBackend.why_unusable() and bool(reason) == bool(CudaBackend.why_unusable())


def test_a_driver_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise driver.DriverError(name, "Failed to dlopen libcuda.so.1")

    pretend_gpu(monkeypatch)
    monkeypatch.setattr(driver, "bindings", lambda: None)
    monkeypatch.setattr(driver, "call", fail)
    assert "dlopen" in CudaBackend.why_unusable()
