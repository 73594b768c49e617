"""What a capture refuses, beyond what `test_conformance.py` compares with CUDA."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from cudagraph_doctor.graph.emulated import EmulatedBackend

DEVICE = "cpu:0"


def refused(step: Callable[[], object]) -> str:
    """The first line of what a capture of the step raises at its line; "" if nothing."""
    try:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            step()
    except RuntimeError as error:
        torch.cuda.set_stream(torch.cuda.default_stream())
        return str(error.__context__ or error)
    return ""


def test_the_operator_is_named(backend: EmulatedBackend) -> None:
    x = torch.zeros(3, device=DEVICE)
    assert refused(lambda: x.nonzero()).endswith("aten.nonzero.default")
    assert refused(lambda: x[x > 0]).endswith("aten.index.Tensor with a boolean mask")


def test_the_same_on_the_host_is_allowed(backend: EmulatedBackend) -> None:
    h = torch.ones(3)
    assert refused(lambda: (h.nonzero(), h[h > 0], h.unique(), h.tolist(), h.numpy(), repr(h), float(h[0]))) == ""


def test_a_non_blocking_copy_to_new_host_memory_is_pinned_by_torch(backend: EmulatedBackend) -> None:
    x = torch.zeros(3, device=DEVICE)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        host = x.to("cpu", non_blocking=True)
    x.fill_(4)
    graph.replay()
    assert host.tolist() == [4, 4, 4]


def test_pinned_memory_to_new_device_memory(backend: EmulatedBackend) -> None:
    pinned = torch.zeros(3, pin_memory=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x = pinned.to(DEVICE, non_blocking=True)
    pinned.fill_(4)
    graph.replay()
    assert x.tolist() == [4, 4, 4]
    assert "not permitted" in refused(lambda: pinned.to(DEVICE))


def test_two_masks_of_the_host_and_the_device(backend: EmulatedBackend) -> None:
    x = torch.zeros(3, device=DEVICE)
    assert "unless the CPU tensor is pinned" in refused(lambda: x[torch.tensor([True, False, True])])
    assert refused(lambda: x.__setitem__(x > 0, 1.0)) == ""
    assert "not permitted" in refused(lambda: x.__setitem__(x > 0, torch.ones(1, device=DEVICE)))


def test_views_are_still_allowed_after_an_error(backend: EmulatedBackend) -> None:
    x = torch.zeros(4, device=DEVICE)

    def step() -> None:
        with pytest.raises(RuntimeError, match="not permitted"):
            x.sum().item()
        x.view(2, 2)
        with pytest.raises(RuntimeError, match="previous error"):
            x + 1

    assert "previous error" in refused(step)


def test_a_generator_of_another_graph(backend: EmulatedBackend) -> None:
    generator = torch.Generator(device=DEVICE)
    x = torch.zeros(3, device=DEVICE)
    torch.cuda.CUDAGraph().register_generator_state(generator)
    assert "not in capture mode" in refused(lambda: x.normal_(generator=generator))


def test_outside_of_captures_nothing_is_refused(backend: EmulatedBackend) -> None:
    x = torch.arange(3.0, device=DEVICE)
    assert x[x > 0].tolist() == x[[1, 2]].tolist() == x.nonzero().flatten().tolist() == [1, 2]
    assert x.sum().item() == 3 and "tensor([0., 1., 2.]" in repr(x)
