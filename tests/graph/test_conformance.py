"""The same things done under CUDA and under the emulation: what is refused in a capture, and what a replay gives.

Each case runs emulated everywhere, and on CUDA where there is a GPU; what is expected was measured there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from cudagraph_doctor.graph.cuda import CudaBackend
from cudagraph_doctor.graph.emulated import EmulatedBackend

NOT_PERMITTED = "operation not permitted when stream is capturing"
PAGEABLE = "Cannot copy between CPU and CUDA tensors during CUDA graph capture unless the CPU tensor is pinned"


@contextmanager
def emulated() -> Iterator[str]:
    with EmulatedBackend().installed():
        yield "cpu:0"


@contextmanager
def cuda() -> Iterator[str]:
    """With the hooks in: what was measured without them holds with them, and torch survives the failed captures."""
    if reason := CudaBackend.why_unusable():
        pytest.skip(reason)
    before = torch.cuda.current_stream()
    try:
        with CudaBackend().installed():
            yield "cuda"
    finally:
        torch.cuda.set_stream(before)
        torch.cuda.synchronize()


@pytest.fixture(params=[emulated, pytest.param(cuda, marks=pytest.mark.gpu)], ids=["emulated", "cuda"])
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """What a target would be called with."""
    with request.param() as name:
        yield name


def attend(x: torch.Tensor, causal: bool) -> torch.Tensor:
    return torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=causal)


class Tensors:
    """Some tensors for the cases."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.floats = torch.arange(6, dtype=torch.float32, device=device)
        self.ints = torch.tensor([0, 2, 1], device=device)
        self.mask = self.floats > 2
        self.host = torch.ones(6)
        self.host_indices = torch.tensor([0, 2])
        self.pinned = torch.ones(6).pin_memory()
        self.generator = torch.Generator(device=device)
        self.event = torch.cuda.Event()
        self.event.record()


def prepared(device: str, step: Callable[[Tensors], object]) -> Tensors:
    """Tensors for a step that has run once outside of captures: libraries are loaded, caches filled."""
    step(Tensors(device))
    torch.cuda.synchronize()
    return Tensors(device)


def refusal(t: Tensors, step: Callable[[Tensors], object]) -> BaseException | None:
    """What a capture of the step raised first, at its line; None if it went through."""
    graph = torch.cuda.CUDAGraph()
    caught: BaseException | None = None
    try:
        with torch.cuda.graph(graph):
            step(t)
    except RuntimeError as error:
        caught = error.__context__ or error
    return caught


REFUSED: dict[str, tuple[Callable[[Tensors], object], str]] = {
    "item": (lambda t: t.floats.sum().item(), NOT_PERMITTED),
    "int": (lambda t: int(t.ints[0]), NOT_PERMITTED),
    "float": (lambda t: float(t.floats[0]), NOT_PERMITTED),
    "truth": (lambda t: bool(t.floats[0] > 0), NOT_PERMITTED),
    "all": (lambda t: bool((t.floats > 0).all()), NOT_PERMITTED),
    "format": (lambda t: f"{t.floats[0]:.2f}", NOT_PERMITTED),
    "repr": (lambda t: repr(t.floats), NOT_PERMITTED),
    "range over a bound": (lambda t: list(range(t.ints[1])), NOT_PERMITTED),
    "slice with a bound": (lambda t: t.floats[: t.ints[1]] + 1, NOT_PERMITTED),
    "max of elements": (lambda t: max(t.floats), NOT_PERMITTED),
    "tolist": (lambda t: t.floats.tolist(), PAGEABLE),
    "cpu": (lambda t: t.floats.cpu(), PAGEABLE),
    "to cpu": (lambda t: t.floats.to("cpu"), PAGEABLE),
    "host to device": (lambda t: t.host.to(t.device), PAGEABLE),
    "copy_ from the host": (lambda t: t.floats.copy_(t.host), PAGEABLE),
    "copy_ to the host": (lambda t: t.host.copy_(t.floats), PAGEABLE),
    "non-blocking copy_ from pageable memory": (lambda t: t.floats.copy_(t.host, non_blocking=True), PAGEABLE),
    "blocking copy_ from pinned memory": (lambda t: t.floats.copy_(t.pinned), NOT_PERMITTED),
    "tensor from a list": (lambda t: torch.tensor([1, 2], device=t.device), PAGEABLE),
    "index by a list": (lambda t: t.floats[[0, 2]], PAGEABLE),
    "index by host indices": (lambda t: t.floats[t.host_indices], PAGEABLE),
    "store a number at indices": (lambda t: t.floats.__setitem__(t.ints, 1.0), PAGEABLE),
    "nonzero": (lambda t: t.floats.nonzero(), NOT_PERMITTED),
    "where with one argument": (lambda t: torch.where(t.mask), NOT_PERMITTED),
    "masked_select": (lambda t: t.floats.masked_select(t.mask), NOT_PERMITTED),
    "index by a mask": (lambda t: t.floats[t.mask], NOT_PERMITTED),
    "unique": (lambda t: t.ints.unique(), NOT_PERMITTED),
    "repeat_interleave": (lambda t: t.ints.repeat_interleave(t.ints), NOT_PERMITTED),
    "bincount": (lambda t: t.ints.bincount(), PAGEABLE),
    "allclose": (lambda t: torch.allclose(t.floats, t.floats + 1), NOT_PERMITTED),
    "equal": (lambda t: torch.equal(t.floats, t.floats + 1), NOT_PERMITTED),
    "one_hot of unknown width": (lambda t: torch.nn.functional.one_hot(t.ints), NOT_PERMITTED),
    "synchronize": (lambda t: torch.cuda.synchronize(), NOT_PERMITTED),
    "Stream.synchronize": (lambda t: torch.cuda.current_stream().synchronize(), NOT_PERMITTED),
    "Stream.query": (lambda t: torch.cuda.current_stream().query(), NOT_PERMITTED),
    "Event.query": (lambda t: t.event.query(), NOT_PERMITTED),
    "Event.synchronize": (lambda t: t.event.synchronize(), NOT_PERMITTED),
    "nested capture": (lambda t: torch.cuda.graph(torch.cuda.CUDAGraph()).__enter__(), NOT_PERMITTED),
    "an unregistered generator": (
        lambda t: t.floats.uniform_(generator=t.generator),
        "Attempt to increase offset for a CUDA generator not in capture mode",
    ),
}


ALONE = {"nested capture"}
"""Not to be tried outside of a capture first."""


@pytest.mark.parametrize("case", REFUSED)
def test_refused_in_a_capture(device: str, case: str) -> None:
    step, message = REFUSED[case]
    tensors = Tensors(device) if case in ALONE else prepared(device, step)
    error = refusal(tensors, step)
    assert error is not None and message in str(error), error


ALLOWED: dict[str, Callable[[Tensors], object]] = {
    "arithmetic": lambda t: t.floats * 2 + 1,
    "matmul": lambda t: t.floats.view(2, 3) @ t.floats.view(3, 2),
    "linear": lambda t: torch.nn.functional.linear(t.floats.view(2, 3), t.floats.view(2, 3), t.floats[:2]),
    "softmax": lambda t: t.floats.softmax(0),
    "softmax in another type": lambda t: t.floats.half().softmax(0, dtype=torch.float32),
    "attention": lambda t: attend(t.floats.view(1, 1, 3, 2), False),
    "causal attention": lambda t: attend(t.floats.view(1, 1, 3, 2), True),
    "embedding": lambda t: torch.nn.functional.embedding(t.ints, t.floats.view(3, 2)),
    "layer_norm": lambda t: torch.nn.functional.layer_norm(t.floats, (6,)),
    "index by device indices": lambda t: t.floats[t.ints],
    "store a tensor at indices": lambda t: t.floats.__setitem__(t.ints, t.floats[:3] + 1),
    "store a number in a slice": lambda t: t.floats.__setitem__(slice(1, 3), 5.0),
    "store a number behind a mask": lambda t: t.floats.__setitem__(t.mask, 0.0),
    "masked_fill": lambda t: t.floats.masked_fill(t.mask, -1.0),
    "where": lambda t: torch.where(t.mask, t.floats, 0.0),
    "scalar tensor of the host": lambda t: t.floats * torch.tensor(2.0),
    "one_hot": lambda t: torch.nn.functional.one_hot(t.ints, 5),
    "topk": lambda t: t.floats.topk(2),
    "sort": lambda t: t.floats.sort(descending=True),
    "argmax": lambda t: t.floats.argmax(),
    "cumsum": lambda t: t.floats.cumsum(0),
    "multinomial": lambda t: t.floats.softmax(0).multinomial(2),
    "rand": lambda t: torch.rand(3, device=t.device),
    "dropout": lambda t: torch.nn.functional.dropout(t.floats),
    "arange": lambda t: torch.arange(4, device=t.device) + t.ints[:1],
    "full": lambda t: torch.full((3,), 7.0, device=t.device),
    "equal to itself": lambda t: torch.equal(t.floats, t.floats),
    "repeat_interleave with output_size": lambda t: t.ints.repeat_interleave(t.ints, output_size=3),
    "non-blocking copy_ from pinned memory": lambda t: t.floats.copy_(t.pinned, non_blocking=True),
    "non-blocking copy_ to pinned memory": lambda t: t.pinned.copy_(t.floats, non_blocking=True),
    "host work": lambda t: t.host.add_(1).sum().item(),
    "host nonzero": lambda t: t.host.nonzero().tolist(),
    "views": lambda t: t.floats.view(2, 3).transpose(0, 1).reshape(6).split(2)[1].unsqueeze(0).expand(3, 2) + 1,
    "foreach": lambda t: torch._foreach_add([t.floats, t.floats], 1.0),
    "cat": lambda t: torch.cat([t.floats, t.floats]),
    "mem_get_info": lambda t: torch.cuda.mem_get_info(),
    "device to device": lambda t: t.floats.to(t.device),
    "to another type": lambda t: t.floats.to(torch.float64),
    "an event recorded and waited for": lambda t: torch.cuda.current_stream().wait_event(
        torch.cuda.current_stream().record_event()
    ),
}


@pytest.mark.parametrize("case", ALLOWED)
def test_allowed_in_a_capture(device: str, case: str) -> None:
    step = ALLOWED[case]
    error = refusal(prepared(device, step), step)
    assert error is None, error


def test_a_failed_capture_is_masked_and_leaves_its_stream_current(device: str) -> None:
    t = Tensors(device)
    stream = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with (
        pytest.raises(RuntimeError, match="operation failed due to a previous error during capture") as caught,
        torch.cuda.graph(graph, stream=stream),
    ):
        t.floats.sum().item()
    assert NOT_PERMITTED in str(caught.value.__context__)
    assert torch.cuda.current_stream() == stream
    torch.cuda.set_stream(torch.cuda.default_stream())
    again = torch.cuda.CUDAGraph()
    with torch.cuda.graph(again):
        out = t.floats + 1
    again.replay()
    assert out.cpu().tolist() == [1, 2, 3, 4, 5, 6]


def test_a_pageable_copy_is_refused_without_harm_to_the_stream(device: str) -> None:
    t = Tensors(device)
    before = torch.cuda.current_stream()
    with pytest.raises(RuntimeError, match="unless the CPU tensor is pinned"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        t.floats.copy_(t.host)
    assert torch.cuda.current_stream() == before


def test_a_stream_that_is_forked_and_not_joined(device: str) -> None:
    t = Tensors(device)
    side = torch.cuda.Stream()
    with (
        pytest.raises(RuntimeError, match="unjoined work"),
        torch.cuda.graph(torch.cuda.CUDAGraph(), stream=torch.cuda.Stream()),
    ):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            t.floats.add_(1)


def test_a_stream_that_is_forked_and_joined(device: str) -> None:
    t = Tensors(device)
    side = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        main = torch.cuda.current_stream()
        side.wait_stream(main)
        with torch.cuda.stream(side):
            a = t.floats * 2
        main.wait_stream(side)
        b = a + 1
    t.floats.fill_(10)
    graph.replay()
    assert b.cpu().tolist() == [21] * 6


def test_waiting_for_an_event_from_outside(device: str) -> None:
    t = Tensors(device)
    outside = torch.cuda.Stream()
    event = torch.cuda.Event()
    with torch.cuda.stream(outside):
        t.floats.add_(1)
        event.record()
    error = refusal(t, lambda t: torch.cuda.current_stream().wait_event(event))
    assert error is not None and "dependency created on uncaptured work in another stream" in str(error)


def test_work_on_a_stream_that_takes_no_part_runs_at_once_and_is_not_in_the_graph(device: str) -> None:
    t = Tensors(device)
    counter = torch.zeros(1, device=device)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    other = torch.cuda.Stream()
    with torch.cuda.graph(graph):
        out = t.floats + 1
        with torch.cuda.stream(other):
            counter.add_(1)
    torch.cuda.synchronize()
    assert counter.item() == 1
    graph.replay()
    torch.cuda.synchronize()
    assert counter.item() == 1 and out[0].item() == 1


def test_capture_on_the_default_stream(device: str) -> None:
    with pytest.raises(RuntimeError, match="must be captured on a non-default stream"):
        torch.cuda.CUDAGraph().capture_begin()


def test_replay_without_a_capture_and_after_reset(device: str) -> None:
    t = Tensors(device)
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        graph.replay()
    with torch.cuda.graph(graph):
        t.floats.add_(1)
    graph.reset()
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        graph.replay()


def test_a_scalar_is_frozen_and_contents_are_not(device: str) -> None:
    t = Tensors(device)
    position = 3
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = t.floats * position
    position = 100
    t.floats.fill_(2)
    graph.replay()
    assert out.cpu().tolist() == [6] * 6


def test_a_host_scalar_tensor_is_frozen(device: str) -> None:
    t = Tensors(device)
    scale = torch.tensor(3.0)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = t.floats * scale
    scale.fill_(100)
    graph.replay()
    assert out.cpu().tolist() == [0, 3, 6, 9, 12, 15]


def test_pinned_memory_is_read_at_replay(device: str) -> None:
    t = Tensors(device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        t.floats.copy_(t.pinned, non_blocking=True)
    t.pinned.fill_(42)
    graph.replay()
    assert t.floats.cpu().tolist() == [42] * 6


def test_pinned_memory_is_written_at_replay(device: str) -> None:
    t = Tensors(device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        t.pinned.copy_(t.floats, non_blocking=True)
    assert t.pinned.tolist() == [1] * 6
    graph.replay()
    torch.cuda.synchronize()
    assert t.pinned.tolist() == [0, 1, 2, 3, 4, 5]


def test_draws_advance_with_each_replay_as_eager_draws_do(device: str) -> None:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = torch.rand(4, device=device)
    torch.manual_seed(7)
    eager = [torch.rand(4, device=device).cpu() for _ in range(3)]
    torch.manual_seed(7)
    replayed = []
    for _ in range(3):
        graph.replay()
        replayed.append(out.cpu())
    assert all(torch.equal(a, b) for a, b in zip(eager, replayed, strict=True))
    assert not torch.equal(replayed[0], replayed[1])


def test_a_capture_does_not_advance_the_generator(device: str) -> None:
    torch.manual_seed(7)
    expected = torch.rand(4, device=device).cpu()
    torch.manual_seed(7)
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        torch.rand(4, device=device)
    assert torch.equal(torch.rand(4, device=device).cpu(), expected)


def test_a_registered_generator(device: str) -> None:
    generator = torch.Generator(device=device)
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(generator)
    generator.manual_seed(5)
    x = torch.zeros(4, device=device)
    with torch.cuda.graph(graph):
        x.uniform_(generator=generator)
    graph.replay()
    first = x.cpu()
    graph.replay()
    second = x.cpu()
    generator.manual_seed(5)
    graph.replay()
    assert torch.equal(x.cpu(), first) and not torch.equal(first, second)


def test_host_draws_and_device_draws_are_apart(device: str) -> None:
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    torch.rand(2, device=device)
    assert torch.equal(torch.rand(2), expected)


def test_a_copy_to_the_host_is_a_copy(device: str) -> None:
    x = torch.zeros(3, device=device)
    kept = x.cpu()
    x.fill_(1)
    assert kept.tolist() == [0, 0, 0] and x.to(device).data_ptr() == x.data_ptr()


def test_a_device_tensor_gives_no_numpy_array(device: str) -> None:
    x = torch.zeros(3, device=device)
    with pytest.raises(TypeError, match="can't convert cuda:0 device type tensor to numpy"):
        x.numpy()
    assert x.numpy(force=True).tolist() == [0, 0, 0]


def test_a_hosts_generator_for_the_device(device: str) -> None:
    with pytest.raises(RuntimeError, match="Expected a 'cuda' device type for generator but found 'cpu'"):
        torch.zeros(3, device=device).uniform_(generator=torch.Generator())


def test_is_current_stream_capturing(device: str) -> None:
    seen = []
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        seen.append(torch.cuda.is_current_stream_capturing())
        with torch.cuda.stream(torch.cuda.Stream()):
            seen.append(torch.cuda.is_current_stream_capturing())
    seen.append(torch.cuda.is_current_stream_capturing())
    assert seen == [True, False, False]


def test_graphs_of_one_pool(device: str) -> None:
    x = torch.ones(4, device=device)
    first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(first):
        a = x + 1
    with torch.cuda.graph(second, pool=first.pool()):
        b = x * 5
    assert first.pool() == second.pool()
    second.replay()
    first.replay()
    assert a.cpu().tolist() == [2] * 4 and b.cpu().tolist() == [5] * 4


def test_make_graphed_callables(device: str) -> None:
    layer = torch.nn.Linear(3, 2, device=device).requires_grad_(False)
    sample = torch.zeros(1, 3, device=device)
    graphed: Any = torch.cuda.make_graphed_callables(layer.forward, (sample,))
    x = torch.ones(1, 3, device=device)
    assert torch.equal(graphed(x), layer(x))
