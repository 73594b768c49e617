"""The rest of `torch.cuda`: answered, or refused in words."""

from __future__ import annotations

import pytest
import torch

from cudagraph_doctor.errors import Inconclusive
from cudagraph_doctor.graph.emulated import EmulatedBackend

DEVICE = "cpu:0"


def test_there_is_one_device(backend: EmulatedBackend) -> None:
    assert torch.cuda.is_available() and torch.cuda.is_initialized() and torch.cuda.device_count() == 1
    assert torch.cuda.current_device() == 0 and "emulated" in torch.cuda.get_device_name()
    properties = torch.cuda.get_device_properties(0)
    assert properties.total_memory > 0 and (properties.major, properties.minor) == torch.cuda.get_device_capability()
    torch.cuda.init()
    torch.cuda.set_device(0)
    with torch.cuda.device(0), torch.cuda.device_of(torch.zeros(1)):
        pass


def test_memory(backend: EmulatedBackend) -> None:
    before = torch.cuda.memory_allocated()
    x = torch.zeros(1000, device=DEVICE)
    assert torch.cuda.memory_allocated() - before == 4 * len(x)
    assert torch.cuda.memory_stats()["allocated_bytes.all.current"] == torch.cuda.memory_reserved() >= 4000
    free, total = torch.cuda.mem_get_info()
    assert 0 < free < total
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    with torch.cuda.use_mem_pool(torch.cuda.MemPool()):
        assert torch.zeros(1, device=DEVICE).device == torch.device(DEVICE)


def test_seeds_are_the_devices(backend: EmulatedBackend) -> None:
    host = torch.get_rng_state()
    torch.cuda.manual_seed(3)
    first = torch.rand(2, device=DEVICE)
    torch.cuda.manual_seed_all(3)
    assert torch.equal(torch.rand(2, device=DEVICE), first) and torch.cuda.initial_seed() == 3
    state = torch.cuda.get_rng_state()
    second = torch.rand(2, device=DEVICE)
    torch.cuda.set_rng_state_all([state])
    assert torch.equal(torch.rand(2, device=DEVICE), second)
    assert torch.equal(torch.get_rng_state(), host) and torch.equal(torch.cuda.get_rng_state_all()[0], backend_state())
    torch.cuda.seed()
    assert not torch.equal(torch.rand(2, device=DEVICE), first)


def backend_state() -> torch.Tensor:
    return torch.cuda.default_generators[0].get_state()


def test_manual_seed_seeds_both(backend: EmulatedBackend) -> None:
    torch.manual_seed(3)
    first = torch.rand(2), torch.rand(2, device=DEVICE)
    torch.manual_seed(3)
    assert torch.equal(torch.rand(2, device=DEVICE), first[1]) and torch.equal(torch.rand(2), first[0])


def test_a_capture_takes_the_seed_that_the_generator_has_and_no_other(backend: EmulatedBackend) -> None:
    """Measured on an H200, torch 2.11: seeding anew with the same seed passes in a capture."""
    torch.cuda.manual_seed(3)
    before = torch.cuda.get_rng_state()
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        torch.cuda.manual_seed(3)
        with pytest.raises(RuntimeError, match="only if new seed is the same"):
            torch.cuda.manual_seed(4)
    assert torch.equal(torch.cuda.get_rng_state(), before)


def test_fork_rng_covers_the_device(backend: EmulatedBackend) -> None:
    state = torch.cuda.get_rng_state()
    with torch.random.fork_rng():
        torch.rand(2, device=DEVICE)
    assert torch.equal(torch.cuda.get_rng_state(), state)


@pytest.mark.parametrize("call", ["get_rng_state", "seed"])
def test_generator_state_in_a_capture(backend: EmulatedBackend, call: str) -> None:
    with torch.cuda.graph(torch.cuda.CUDAGraph()), pytest.raises(RuntimeError, match="during CUDA graph capture"):
        getattr(torch.cuda, call)()
    state = torch.cuda.get_rng_state()
    with torch.cuda.graph(torch.cuda.CUDAGraph()), pytest.raises(RuntimeError, match="during CUDA graph capture"):
        torch.cuda.set_rng_state(state)


def test_nvtx_says_nothing(backend: EmulatedBackend) -> None:
    torch.cuda.nvtx.range_push("step")
    torch.cuda.nvtx.range_pop()
    torch.cuda.nvtx.mark("here")
    with torch.cuda.nvtx.range("step"):
        torch.cuda._sleep(1000)


def test_the_accelerator_is_the_device(backend: EmulatedBackend) -> None:
    assert torch.accelerator.is_available() and torch.accelerator.device_count() == 1
    assert torch.zeros(1, device=torch.accelerator.current_accelerator()).device == torch.device(DEVICE)
    torch.accelerator.synchronize()
    assert torch.accelerator.current_stream() == torch.cuda.current_stream()
    with pytest.raises(RuntimeError, match="previous error") as caught, torch.cuda.graph(torch.cuda.CUDAGraph()):
        torch.accelerator.synchronize()
    assert "not permitted" in str(caught.value.__context__)


@pytest.mark.parametrize("name", ["memory_snapshot", "utilization", "get_gencode_flags", "caching_allocator_alloc"])
def test_what_is_not_emulated_says_so(backend: EmulatedBackend, name: str) -> None:
    with pytest.raises(Inconclusive, match=rf"torch.cuda.{name}\(\) is not emulated"):
        getattr(torch.cuda, name)()


def test_every_public_function_is_answered_or_refused(backend: EmulatedBackend) -> None:
    kept = {"check_error", "make_graphed_callables"}
    for name in set(torch.cuda.__all__) - kept:
        found = getattr(torch.cuda, name)
        if callable(found) and hasattr(found, "__code__"):
            assert found.__module__.startswith("cudagraph_doctor."), name
