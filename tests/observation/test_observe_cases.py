"""The small cases that the emulation is held to: each one that a capture refuses is named and classed, no other is."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from cudagraph_doctor.graph.backend import Backend
from cudagraph_doctor.graph.cuda import CudaBackend
from cudagraph_doctor.graph.emulated import EmulatedBackend
from cudagraph_doctor.graph.illegal import Kind
from cudagraph_doctor.observation.model import Observation
from cudagraph_doctor.observation.observe import Observer
from cudagraph_doctor.progress import Silent
from tests.observation.conftest import Player


def load_cases() -> ModuleType:
    file = Path(__file__).resolve().parents[1] / "graph" / "capture_cases.py"
    spec = importlib.util.spec_from_file_location("observed_capture_cases", file)
    assert spec and spec.loader
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


cases = load_cases()
MODES = [torch.no_grad, torch.inference_mode]


class OfACase(Player):
    """Captures a case, after a warm-up where that is possible."""

    def __init__(self, step: Callable[[Any], object], warm: bool, mode: Any, device: str) -> None:
        self.mode = mode
        with mode():
            tensors = cases.Tensors(device)
            if warm:
                step(cases.Tensors(device))
        super().__init__(lambda: step(tensors))

    def capture(self) -> None:
        with self.mode():
            super().capture()


@pytest.fixture(params=[EmulatedBackend, pytest.param(CudaBackend, marks=pytest.mark.gpu)], ids=["emulated", "cuda"])
def backend(request: pytest.FixtureRequest) -> Backend:
    if request.param is CudaBackend and (reason := CudaBackend.why_unusable()):
        pytest.skip(reason)
    made: Backend = request.param()
    return made


def observed(backend: Backend, name: str, step: Callable[[Any], object], mode: Any) -> Observation:
    with backend.installed():
        player = OfACase(step, name not in cases.ALONE, mode, backend.device)
        return Observer(lambda opened: player, backend, Silent()).observe()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", cases.REFUSED)
def test_what_a_capture_refuses_is_named(backend: Backend, name: str, mode: Any) -> None:
    found = observed(backend, name, cases.REFUSED[name][0], mode)
    assert found.refusals and found.complete and found.suspected == ()
    for refusal in found.refusals:
        assert refusal.operation and refusal.operation.name and refusal.operation.kind is not Kind.UNKNOWN, refusal
        assert refusal.operation.location and refusal.operation.location.file == cases.__file__


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", cases.ALLOWED)
def test_what_a_capture_takes_is_not(backend: Backend, name: str, mode: Any) -> None:
    found = observed(backend, name, cases.ALLOWED[name], mode)
    assert (found.refusals, found.suspected, found.outside, found.first_uses) == ((), (), (), ())
