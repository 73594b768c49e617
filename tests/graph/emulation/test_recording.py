"""Replays: recorded operators on recorded memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from cudagraph_doctor.graph.emulated import EmulatedBackend
from cudagraph_doctor.graph.operators import tensors_in

DEVICE = "cpu:0"


def test_tensors_in_nested_arguments() -> None:
    a, b, c = torch.zeros(1), torch.zeros(2), torch.zeros(3)
    assert list(tensors_in((a, [b, None, 3], {"out": (c,)}))) == [a, b, c]
    assert list(tensors_in("text")) == []


def replayed(backend: EmulatedBackend, x: torch.Tensor, step: Callable[[torch.Tensor], object]) -> object:
    """What the step gives when it is captured on zeros and replayed on `x`."""
    static = torch.zeros_like(x)
    graph: Any = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = step(static)
    static.copy_(x)
    graph.replay()
    return out


def store(target: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    target[2:4] = x[:2]
    target[0] = x[5]
    return target


def attend(x: torch.Tensor, **options: Any) -> torch.Tensor:
    heads = x.view(1, 1, 3, 2)
    return torch.nn.functional.scaled_dot_product_attention(heads, heads + 1, heads * 2, **options)


STEPS: dict[str, Callable[[torch.Tensor], object]] = {
    "one output": lambda x: x * 2,
    "several outputs": lambda x: x.topk(2),
    "nested outputs": lambda x: torch._foreach_mul([x, x + 1], 3.0),
    "in place": lambda x: x.clone().add_(3).mul_(2),
    "in place on a view": lambda x: x.clone()[1:].add_(3),
    "into out=": lambda x: torch.add(x, 1, out=torch.empty_like(x)),
    "views of views": lambda x: x.view(2, 3).t()[1:].flatten() + 1,
    "a view that is returned": lambda x: (x * 2).view(3, 2)[1],
    "a transposed output": lambda x: x.view(2, 3).t().mul(2).t(),
    "reshape that copies": lambda x: x.view(2, 3).t().reshape(6),
    "index_put_": lambda x: x.clone().index_put_((torch.arange(3, device=DEVICE) * 2,), x[:3] + 9),
    "setitem": lambda x: store(x.clone(), x),
    "scatter": lambda x: torch.zeros(6, device=DEVICE).scatter_add_(0, torch.arange(6, device=DEVICE), x),
    "type change": lambda x: x.to(torch.float64),
    "sort": lambda x: x.sort(descending=True),
    "matmul": lambda x: x.view(2, 3) @ x.view(3, 2),
    "attention": lambda x: attend(x, is_causal=True),
    "masked attention": lambda x: attend(x, attn_mask=torch.ones(3, 3, dtype=torch.bool, device=DEVICE).tril()),
    "one_hot": lambda x: torch.nn.functional.one_hot(x.long().clamp(0, 3), 4),
    "layer_norm": lambda x: torch.nn.functional.layer_norm(x, (6,)),
    "a conjugated view": lambda x: torch.fft.hfftn(x.view(2, 3)),
    "einsum": lambda x: torch.einsum("ij,kj->ik", x.view(2, 3), x.view(2, 3)),
}


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_a_replay_gives_what_the_step_gives(
    backend: EmulatedBackend, step: Callable[[torch.Tensor], object], mode: Callable[[], torch.no_grad]
) -> None:
    x = torch.tensor([0.5, 3.0, -1.0, 2.0, 7.0, 1.5], device=DEVICE)
    with torch.no_grad():
        expected = list(tensors_in(step(x)))
    with mode():
        found = list(tensors_in(replayed(backend, x, step)))
    assert len(found) == len(expected) > 0
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b)


def test_captured_with_gradients_and_replayed_in_inference_mode(backend: EmulatedBackend) -> None:
    layer = torch.nn.Linear(2, 2).to(DEVICE)
    x = torch.zeros(1, 2, device=DEVICE)
    graph: Any = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = layer(x)
    x.fill_(1)
    with torch.inference_mode():
        graph.replay()
    assert torch.equal(y.detach(), layer(x).detach())


def test_captured_in_inference_mode_and_replayed_outside(backend: EmulatedBackend) -> None:
    with torch.inference_mode():
        x = torch.zeros(2, device=DEVICE)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            x.add_(1)
    graph.replay()
    assert x.tolist() == [1, 1]


def test_a_custom_operator_is_one_node(backend: EmulatedBackend) -> None:
    @torch.library.custom_op("cudagraph_doctor_tests::write_rows", mutates_args={"cache"})
    def write_rows(cache: torch.Tensor, rows: torch.Tensor, values: torch.Tensor) -> None:
        for row, value in zip(rows.tolist(), values, strict=True):
            if row >= 0:
                cache[row] = value * 2

    cache = torch.zeros(4, device=DEVICE)
    rows, values = torch.tensor([1, -1], device=DEVICE), torch.ones(2, device=DEVICE)
    graph: Any = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        write_rows(cache, rows, values)
    assert cache.tolist() == [0, 0, 0, 0]
    assert [node.operator.base for node in graph.recording.nodes] == ["cudagraph_doctor_tests::write_rows"]
    rows.copy_(torch.tensor([3, 0]))
    graph.replay()
    assert cache.tolist() == [2, 0, 0, 2]


def test_host_arguments_of_a_custom_operator_are_read_at_capture(backend: EmulatedBackend) -> None:
    @torch.library.custom_op("cudagraph_doctor_tests::add_host", mutates_args=())
    def add_host(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return torch.add(x, sum(lengths.tolist()))

    lengths = torch.tensor([1, 2])
    x = torch.zeros(2, device=DEVICE)
    graph: Any = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = add_host(x, lengths)
    lengths.fill_(100)
    graph.replay()
    assert y.tolist() == [3, 3]


def test_metadata_changed_after_the_operator_does_not_matter(backend: EmulatedBackend) -> None:
    x = torch.zeros(2, 3, device=DEVICE)
    graph: Any = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x + torch.arange(3, device=DEVICE)
        x.t_()
    graph.replay()
    assert y.tolist() == [[0, 1, 2], [0, 1, 2]]


def test_an_index_out_of_range_at_replay_is_a_device_assertion(backend: EmulatedBackend) -> None:
    table, at = torch.arange(4, device=DEVICE), torch.zeros(1, dtype=torch.long, device=DEVICE)
    graph: Any = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        table.index_select(0, at)
    at.fill_(99)
    with pytest.raises(RuntimeError, match=r"device-side assert triggered\naten.index_select.default") as caught:
        graph.replay()
    assert isinstance(caught.value.__cause__, IndexError)


def test_replays_are_not_seen_by_other_dispatch_modes(backend: EmulatedBackend) -> None:
    class Counting(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    seen: list[str] = []
    x = torch.zeros(2, device=DEVICE)
    graph: Any = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x.add_(1)
    with Counting():  # type: ignore[no-untyped-call]
        graph.replay()
        assert seen == []
        x.add_(1)
    assert seen == ["aten.add_.Tensor"]
