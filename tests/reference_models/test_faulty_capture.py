"""Capture faults change no eager result; a capture of the step is refused, or passes and is wrong; twins are sound."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from cudagraph_doctor import reference_models
from cudagraph_doctor.graph.cuda import CudaBackend
from cudagraph_doctor.graph.emulated import EmulatedBackend
from cudagraph_doctor.graph.recovery import forget_captured_events, free_generators
from cudagraph_doctor.reference_models.capture_faults import CAPTURE_FAULTS, planted_lines

SCRIPT = Path(__file__).resolve().parents[1] / "plain_capture.py"
LOUD = [name for name, fault in CAPTURE_FAULTS.items() if not fault.silent]
SILENT = [name for name, fault in CAPTURE_FAULTS.items() if fault.silent]
IN_ORDER = [(0, 4), (1, 3), (7, 1), (21, 4)]
"""(step, rows)."""


def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("plain_capture", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


plain = load_script()


def made(device: str, name: str, twin: bool = False) -> Any:
    form = CAPTURE_FAULTS[name].forms[0] if name else "loop"
    return reference_models.load(form, device=device, fault=name, twin=twin, preset="tiny")


@pytest.fixture(autouse=True)
def new_capture_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream of captures is none of the fault's own: torch hands out 32 of them in turn."""
    monkeypatch.setattr(torch.cuda.graph, "default_capture_stream", None)


@pytest.fixture
def emulated() -> Iterator[str]:
    with EmulatedBackend().installed():
        yield "cpu:0"


@pytest.fixture
def cuda() -> Iterator[str]:
    """With the hooks in, torch survives captures that fail."""
    if reason := CudaBackend.why_unusable():
        pytest.skip(reason)
    before = torch.cuda.current_stream()
    try:
        with CudaBackend().installed():
            yield "cuda"
    finally:
        torch.cuda.set_stream(before)
        torch.cuda.synchronize()


def eager(target: Any) -> list[dict[str, torch.Tensor]]:
    """The outputs of some eager steps."""
    target.reset()
    if hasattr(target, "step"):
        target.graphs(False)
        return [target.step(i, n) for i, n in IN_ORDER]
    return [target.forward(target.next_inputs(i, n)) for i, n in IN_ORDER]


def check_eager(device: str, name: str, twin: bool) -> None:
    sound = reference_models.load(CAPTURE_FAULTS[name].forms[0], device=device, preset="tiny")
    for found, wanted in zip(eager(made(device, name, twin)), eager(sound), strict=True):
        assert set(found) == set(wanted)
        assert all(torch.equal(found[key], wanted[key]) for key in wanted)


@pytest.mark.parametrize("twin", [False, True])
@pytest.mark.parametrize("name", CAPTURE_FAULTS)
def test_eager_steps_are_the_sound_ones_bit_for_bit(emulated: str, name: str, twin: bool) -> None:
    check_eager(emulated, name, twin)


@pytest.mark.gpu
@pytest.mark.parametrize("twin", [False, True])
@pytest.mark.parametrize("name", CAPTURE_FAULTS)
def test_eager_steps_are_the_sound_ones_on_a_gpu(cuda: str, name: str, twin: bool) -> None:
    check_eager(cuda, name, twin)


@pytest.mark.parametrize("name", [name for name in LOUD if CAPTURE_FAULTS[name].emulated])
def test_the_emulation_refuses_the_capture(emulated: str, name: str) -> None:
    answer = plain.attempt(name, False, emulated)
    assert answer["raised"].startswith(("RuntimeError", "AcceleratorError")), answer


@pytest.mark.parametrize("name", [name for name in LOUD if CAPTURE_FAULTS[name].emulated])
def test_the_first_error_is_raised_at_the_planted_line_where_it_has_one(emulated: str, name: str) -> None:
    planted = {f"{Path(line.file).name}:{line.line}" for line in planted_lines(name)}
    without_a_line = {"unjoined-stream", "other-thread-event"}
    assert (plain.attempt(name, False, emulated)["first_at"] in planted) == (name not in without_a_line)


@pytest.mark.parametrize("name", [*SILENT, *(name for name in LOUD if not CAPTURE_FAULTS[name].emulated)])
def test_the_emulation_lets_these_pass(emulated: str, name: str) -> None:
    assert plain.attempt(name, False, emulated)["raised"] == ""


@pytest.mark.parametrize("name", CAPTURE_FAULTS)
def test_the_emulation_captures_every_twin(emulated: str, name: str) -> None:
    assert plain.attempt(name, True, emulated)["raised"] == ""


def in_a_process_of_its_own(name: str, twin: bool) -> dict[str, str]:
    command = [sys.executable, str(SCRIPT), name, *(["--twin"] if twin else [])]
    path = os.pathsep.join(filter(None, [str(SCRIPT.parents[1]), os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "PYTHONPATH": path}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    except subprocess.TimeoutExpired as error:
        pytest.fail(f"{name}: not done after {error.timeout:.0f} s; so far it said: {error.stderr!r}")
    assert done.returncode == 0, f"{name}: exit {done.returncode}: {done.stderr}"
    answer: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return answer


def in_this_process(name: str, twin: bool) -> dict[str, str]:
    """Plain but for the hooks that let torch survive captures that fail; afterwards torch is as before."""
    try:
        answer: dict[str, str] = plain.attempt(name, twin, "cuda")
    finally:
        free_generators()
        forget_captured_events()
    return answer


@pytest.mark.gpu
@pytest.mark.parametrize("twin", [False, True])
@pytest.mark.parametrize("name", CAPTURE_FAULTS)
def test_what_cuda_refuses(cuda: str, name: str, twin: bool) -> None:
    answer = in_a_process_of_its_own(name, twin) if CAPTURE_FAULTS[name].first_use else in_this_process(name, twin)
    assert bool(answer["raised"]) == (name in LOUD and not twin), answer


def counted(target: Any) -> float:
    """How far the counter of `default-stream-launch` goes in three replays."""
    graph, static, _ = plain.capture(target)
    torch.cuda.synchronize()
    before = target.model.sampler.seen.item()
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    del static
    return float(target.model.sampler.seen.item() - before)


@pytest.mark.parametrize("place", ["emulated", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("twin", [False, True])
def test_work_on_the_default_stream_is_not_replayed(request: Any, place: str, twin: bool) -> None:
    assert counted(made(request.getfixturevalue(place), "default-stream-launch", twin)) == (3 if twin else 0)


@pytest.mark.parametrize("place", ["emulated", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("twin", [False, True])
def test_replays_of_an_empty_graph_do_nothing(request: Any, place: str, twin: bool) -> None:
    graph, static, outputs = plain.capture(made(request.getfixturevalue(place), "empty-graph", twin))
    torch.cuda.synchronize()
    outputs["tokens"].fill_(-1)
    graph.replay()
    torch.cuda.synchronize()
    assert (outputs["tokens"] == -1).all().item() == (not twin)
    del static


@pytest.mark.gpu
@pytest.mark.parametrize("twin", [False, True])
def test_what_autocast_cast_around_a_capture_is_overwritten(cuda: str, twin: bool) -> None:
    """Emulated, memory that is free is not given to others."""
    target = made(cuda, "autocast-around-captures", twin)
    run, seen = target.graphed(), target.model.sampler.seen
    others = free_memory_filled(cuda)  # first of all: whoever asks next may be given what is read
    inputs = target.next_inputs(0, 4)
    target.forward(inputs)
    eager = seen.item()
    run(inputs)
    torch.cuda.synchronize()
    told = f"{seen.item()} replayed, {eager} eagerly, {len(others)} tensors in what was free"
    assert abs(seen.item() - eager) < 0.1 if twin else abs(seen.item() - eager) > 1.0, told


def free_memory_filled(device: str) -> list[torch.Tensor]:
    """Tensors of 10,000s in all the memory that torch's allocator keeps for small ones: then it has to get more."""

    def segments() -> int:
        return int(torch.cuda.memory_stats()["segment.small_pool.current"])

    before, found = segments(), list[torch.Tensor]()
    while segments() <= before:
        found += [torch.full((64,), 1e4, dtype=torch.bfloat16, device=device) for _ in range(256)]
    return found


def test_the_captured_source_is_dropped(emulated: str) -> None:
    target = made(emulated, "host-source-dies")
    ready = weakref.ref(target.model.sampler.spare[-1].untyped_storage())
    target.forward(target.next_inputs(0, 1))
    assert ready() is None
