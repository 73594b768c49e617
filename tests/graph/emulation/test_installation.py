"""Everything is as before after a run, whatever happened in it."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from cudagraph_doctor.graph.emulated import EmulatedBackend

OWNERS = (
    torch, torch.Tensor, torch.nn.functional, torch.cuda, torch.cuda.graphs, torch.cuda.streams, torch.cuda.nvtx,
    torch.accelerator,
)  # fmt: skip


def everything() -> list[dict[str, object]]:
    return [dict(vars(owner)) for owner in OWNERS]


def test_all_attributes_are_put_back() -> None:
    before = everything()
    with EmulatedBackend().installed():
        assert everything() != before
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            torch.zeros(1, device="cpu:0")
    assert everything() == before
    assert not _get_current_dispatch_mode_stack() and torch.zeros(1).device.index is None


def test_all_attributes_are_put_back_after_an_error() -> None:
    before = everything()
    with pytest.raises(KeyError), EmulatedBackend().installed():
        raise KeyError
    assert everything() == before and not _get_current_dispatch_mode_stack()


def test_it_can_be_installed_again_and_again() -> None:
    backend = EmulatedBackend()
    for _ in range(2):
        with backend.installed(), torch.cuda.graph(torch.cuda.CUDAGraph()):
            pass
    assert len(backend.log.graphs) == 2


def test_a_capture_that_was_never_ended_leaves_nothing() -> None:
    backend = EmulatedBackend()
    with backend.installed():
        x = torch.zeros(1, device="cpu:0")
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.cuda.CUDAGraph().capture_begin()
            x.add_(1)
    assert x.item() == 0 and not torch.nn.modules.module._global_forward_hooks
    with backend.installed(), torch.cuda.graph(torch.cuda.CUDAGraph()):
        pass


def test_device_tensors_can_be_used_after_the_run() -> None:
    with EmulatedBackend().installed():
        x = torch.ones(2, device="cpu:0")
    assert (x + 1).tolist() == [2, 2] and x.device == torch.device("cpu") and x.numpy().tolist() == [1, 1]


@pytest.mark.parametrize("name", ["cuda", "cpu:0"])
def test_a_default_device_of_the_target_does_not_outlive_the_run(name: str) -> None:
    with EmulatedBackend().installed():
        torch.set_default_device(name)
    assert torch.get_default_device() == torch.device("cpu") and torch.zeros(1).device == torch.device("cpu")


def test_not_even_one_that_says_the_same_does() -> None:
    with EmulatedBackend().installed():
        torch.set_default_device("cpu")
    assert torch.overrides._get_current_function_mode() is None


def test_a_default_device_from_before_is_kept() -> None:
    torch.set_default_device("meta")
    try:
        with EmulatedBackend().installed():
            assert torch.tensor([1]).device.type == "meta"
            torch.set_default_device("cpu:0")
        assert torch.get_default_device().type == "meta"
    finally:
        torch.set_default_device(None)


def test_compiled_functions_run_eagerly_and_only_during_the_run() -> None:
    # In a process of its own: the compiler is imported, and it keeps what it finds in torch.
    program = """
import torch
from cudagraph_doctor.graph.emulated import EmulatedBackend
real = torch.compile
backend = EmulatedBackend()
with backend.installed():
    @torch.compile(mode="reduce-overhead", fullgraph=True)
    def step(x):
        return torch.relu(x) * 2
    layer = torch.compile(torch.nn.Linear(2, 2).to("cpu:0"))
    module = torch.nn.Linear(2, 2).to("cpu:0")
    module.compile()
    x = torch.ones(1, 2, device="cpu:0")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = module(step(layer(x)))
    graph.replay()
    assert torch.equal(y, module(step(layer(x))))
    print([node.operator.name for node in graph.recording.nodes])
assert torch.compile is real
@torch.compile(backend="eager")
def after(x):
    return x + 1
assert after(torch.ones(1)).item() == 2
assert torch.compiler.set_stance("default") is not None
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(
        ["aten.addmm.default", "aten.relu.default", "aten.mul.Tensor", "aten.addmm.default"]
    )


def test_the_compiler_is_not_imported_for_nothing() -> None:
    program = """
import sys, torch
from cudagraph_doctor.graph.emulated import EmulatedBackend
with EmulatedBackend().installed():
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), torch.inference_mode():
        torch.nn.Linear(2, 2, device="cpu:0")(torch.ones(1, 2, device="cpu:0"))
    graph.replay()
print("torch._dynamo" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == "False", done.stderr


def test_operators_run_on_one_thread_and_afterwards_on_as_many_as_before() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with EmulatedBackend().installed():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
