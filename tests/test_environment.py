"""What `env` finds, on machines that are made up."""

from __future__ import annotations

import importlib
import shutil
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cudagraph_doctor import environment
from cudagraph_doctor.graph import driver

Machine = Callable[..., None]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """`machine(cuda="13.0", gpu=True, modules=("cuda.core",))`: what torch, imports and driver answer from then on."""

    def make(
        *,
        cuda: str | None = None,
        gpu: bool = False,
        modules: tuple[str, ...] = (),
        torch: bool = True,
        version: int = 13000,
        graph: tuple[str, ...] = ("raw_cuda_graph",),
    ) -> None:
        fake: Any = types.ModuleType("torch")
        fake.__version__ = "2.11.0"
        fake._C = types.SimpleNamespace(_CUDAGraph=types.SimpleNamespace(**dict.fromkeys(graph)))
        fake.version = types.SimpleNamespace(cuda=cuda)
        fake.cuda = types.SimpleNamespace(
            is_available=lambda: gpu,
            get_device_name=lambda: "NVIDIA H200",
            device_count=lambda: 1,
            get_device_capability=lambda: (9, 0),
        )
        monkeypatch.setitem(sys.modules, "torch", fake if torch else None)
        known: dict[str, types.ModuleType] = {"torch": fake} if torch else {}
        known |= {name: types.ModuleType(name) for name in modules}
        if bindings := known.get("cuda.bindings.driver"):
            vars(bindings)["cuDriverGetVersion"] = lambda: (0, version) if version else (100, 0)

        def import_module(name: str) -> types.ModuleType:
            if name not in known:
                raise ImportError(f"No module named '{name}'")
            return known[name]

        monkeypatch.setattr(importlib, "import_module", import_module)
        monkeypatch.setattr(shutil, "which", lambda name: None)

    driver.bindings.cache_clear()  # a test before this one may have imported the real ones
    yield make
    driver.bindings.cache_clear()


def test_a_cpu_build(machine: Machine) -> None:
    machine()
    assert "a build without CUDA" in environment.cuda_obstacle()
    found = environment.survey()
    assert any(
        sentence.startswith("checkup, capture, diff, inputs and audit --target, emulated") for sentence in found.can
    )
    assert any("audit --target, on real graphs: " in sentence for sentence in found.cannot)
    assert any(sentence.startswith("traces (buckets): SQLite exports") for sentence in found.can)
    assert any(sentence.startswith("traces of torch.profiler (buckets): ijson cannot") for sentence in found.cannot)
    assert found.parts["nsys"] == "not found on PATH"
    assert environment.runtime()["torch_cuda"] == ""


def test_a_cuda_build_without_gpu(machine: Machine) -> None:
    machine(cuda="13.0")
    assert "finds no usable GPU" in environment.cuda_obstacle()


def test_a_gpu_without_bindings_says_what_to_install(machine: Machine) -> None:
    machine(cuda="12.8", gpu=True)
    assert environment.gpu_obstacle() == ""
    assert "pip install 'cudagraph-doctor[cuda12]'" in environment.cuda_obstacle()
    assert environment.survey().parts["GPU as torch sees it"] == "NVIDIA H200"


def test_a_full_machine(machine: Machine) -> None:
    machine(cuda="13.0", gpu=True, modules=("cuda.bindings.driver", "cuda.core", "cupti.cupti", "ijson"))
    assert environment.cuda_obstacle() == ""
    found = environment.survey()
    assert not found.cannot
    assert "traces (buckets): SQLite exports of nsys and torch.profiler traces, from any machine." in found.can
    on_targets = "checkup, capture, diff, inputs and audit --target, on real graphs"
    assert any(sentence.startswith(on_targets) for sentence in found.can)
    assert any("(record)" in sentence for sentence in found.can)
    assert any("(audit)" in sentence for sentence in found.can)
    facts = environment.runtime() | environment.gpu()
    assert (facts["gpu"], facts["compute_capability"], facts["torch_cuda"]) == ("NVIDIA H200", "9.0", "13.0")


def test_no_compiler_and_no_cupti(machine: Machine) -> None:
    machine(cuda="13.0", gpu=True, modules=("cuda.bindings.driver",))
    said = " ".join(environment.survey().cannot)
    assert "own CUDA kernels: cuda.core cannot be imported" in said
    assert "cupti.cupti cannot be imported" in said


@pytest.mark.parametrize(
    ("version", "reason"), [(12030, "supports CUDA 12.3; 12.4 is needed"), (0, "does not answer"), (12040, "")]
)
def test_the_driver_is_asked(machine: Machine, version: int, reason: str) -> None:
    machine(cuda="13.0", gpu=True, modules=("cuda.bindings.driver",), version=version)
    found = environment.cuda_obstacle()
    assert reason in found and bool(reason) == bool(found)


def test_a_torch_that_keeps_no_graph(machine: Machine) -> None:
    machine(cuda="12.6", gpu=True, modules=("cuda.bindings.driver",), graph=())
    assert "cannot keep a captured graph (CUDAGraph(keep_graph=True)); 2.8 or newer can" in environment.cuda_obstacle()


def test_without_torch(machine: Machine) -> None:
    machine(torch=False)
    assert "torch cannot be imported" in environment.cuda_obstacle()
    found = environment.survey()
    assert any(sentence.startswith("any target: torch cannot be imported") for sentence in found.cannot)
    assert any("saved reports" in sentence for sentence in found.can)


@pytest.mark.parametrize(("script", "answer"), [("echo one; echo two", "one"), ("exit 3", ""), ("", "")])
def test_programs_are_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: Machine, script: str, answer: str
) -> None:
    program = tmp_path / "nsys"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    machine()
    monkeypatch.setattr(shutil, "which", lambda name: str(program) if name == "nsys" else None)
    assert environment.survey().parts["nsys"] == (answer or "not found on PATH")


def test_base_needs_no_torch() -> None:
    assert set(environment.base()) == {"python", "platform"}
