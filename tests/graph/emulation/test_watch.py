"""Which memory counts as the device's: every way to make a tensor."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from cudagraph_doctor.graph.emulated import EmulatedBackend
from cudagraph_doctor.graph.emulation.device import EmulatedDevice
from cudagraph_doctor.graph.emulation.memory import place_of
from cudagraph_doctor.graph.emulation.watch import Watch, means_device, watching
from cudagraph_doctor.graph.illegal import Place

DEVICE = "cpu:0"


@pytest.fixture
def x(backend: EmulatedBackend) -> torch.Tensor:
    """A device tensor."""
    return torch.arange(6.0, device=DEVICE).view(2, 3)


ON_DEVICE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "zeros": lambda x: torch.zeros(2, device=DEVICE),
    "its device": lambda x: torch.zeros(2, device=x.device),
    "cuda": lambda x: torch.zeros(2, device="cuda"),
    "cuda:0": lambda x: torch.zeros(2, device=torch.device("cuda", 0)),
    "arange": lambda x: torch.arange(2, device=DEVICE),
    "tensor": lambda x: torch.tensor([1, 2], device=DEVICE),
    "tensor on cuda": lambda x: torch.tensor([1, 2], device="cuda"),
    "as_tensor": lambda x: torch.as_tensor([1, 2], device=DEVICE),
    "as_tensor of an array": lambda x: torch.as_tensor(np.zeros(2), device=DEVICE),
    "asarray": lambda x: torch.asarray(np.zeros(2), device="cuda"),
    "like it": lambda x: torch.zeros_like(x),
    "like a host tensor": lambda x: torch.zeros_like(torch.zeros(2), device=DEVICE),
    "new_zeros": lambda x: x.new_zeros(2),
    "new_tensor": lambda x: x.new_tensor([1, 2]),
    "to": lambda x: torch.zeros(2).to(DEVICE),
    "to cuda": lambda x: torch.zeros(2).to("cuda"),
    "cuda()": lambda x: torch.zeros(2).cuda(),
    "to a device and a type": lambda x: torch.zeros(2).to(DEVICE, torch.int64),
    "to another tensor": lambda x: torch.zeros(2).to(x),
    "an operator": lambda x: x + 1,
    "an operator with a host scalar": lambda x: torch.tensor(2.0) * x,
    "a list of tensors": lambda x: torch.cat([x, x]),
    "out=": lambda x: torch.add(x, 1, out=torch.empty_like(x)),
    "a view": lambda x: x[0, 1:],
    "detach": lambda x: x.detach(),
    ".data": lambda x: x.data,
    "a composite operator": lambda x: torch.nn.functional.linear(x, x),
    "one_hot": lambda x: torch.nn.functional.one_hot(x.long(), 6),
    "tensor of a device tensor": lambda x: torch.tensor(x[0, 0].item(), device=x.device),
    "softmax in another type": lambda x: x.softmax(0, dtype=torch.float64),
    "quantile": lambda x: x.quantile(0.5),
    "type by name": lambda x: torch.zeros(2).type("torch.cuda.LongTensor"),
    "a number from default device": lambda x: torch.scalar_tensor(1.0, device=DEVICE),
}
ON_HOST: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "zeros": lambda x: torch.zeros(2),
    "cpu": lambda x: torch.zeros(2, device="cpu"),
    "tensor": lambda x: torch.tensor([1, 2]),
    "from_numpy": lambda x: torch.from_numpy(np.zeros(2)),
    "as_tensor": lambda x: torch.as_tensor(np.zeros(2)),
    "frombuffer": lambda x: torch.frombuffer(bytearray(8), dtype=torch.int64),
    "cpu()": lambda x: x.cpu(),
    "to cpu": lambda x: x.to("cpu"),
    "to cpu and a type": lambda x: x.to(torch.device("cpu"), torch.int64),
    "LongTensor": lambda x: x.type(torch.LongTensor),  # type: ignore[call-overload]
    "LongTensor by name": lambda x: x.type("torch.LongTensor"),
    "like it, on the host": lambda x: torch.zeros_like(x, device="cpu"),
    "new_zeros on the host": lambda x: x.new_zeros(2, device="cpu"),
    "an operator": lambda x: torch.zeros(2) + 1,
}
PINNED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "pin_memory()": lambda x: torch.zeros(2).pin_memory(),
    "pin_memory=": lambda x: torch.zeros(2, pin_memory=True),
    "empty": lambda x: torch.empty(2, pin_memory=True),
    "tensor": lambda x: torch.tensor([1, 2], pin_memory=True),
    "a view": lambda x: torch.zeros(4, pin_memory=True)[1:],
}


@pytest.mark.parametrize("inference", [False, True], ids=["", "inference mode"])
@pytest.mark.parametrize("make", ON_DEVICE.values(), ids=ON_DEVICE)
def test_device_tensors(x: torch.Tensor, make: Callable[[torch.Tensor], torch.Tensor], inference: bool) -> None:
    with torch.inference_mode(inference):
        made = make(x)
    assert place_of(made) is Place.DEVICE
    assert made.device == torch.device(DEVICE) and not made.is_pinned() and not made.is_cuda


@pytest.mark.parametrize("inference", [False, True], ids=["", "inference mode"])
@pytest.mark.parametrize("make", ON_HOST.values(), ids=ON_HOST)
def test_host_tensors(x: torch.Tensor, make: Callable[[torch.Tensor], torch.Tensor], inference: bool) -> None:
    with torch.inference_mode(inference):
        made = make(x)
    assert place_of(made) is not Place.DEVICE
    assert made.device == torch.device("cpu") and made.device.index is None and not made.is_pinned()


@pytest.mark.parametrize("inference", [False, True], ids=["", "inference mode"])
@pytest.mark.parametrize("make", PINNED.values(), ids=PINNED)
def test_pinned_tensors(x: torch.Tensor, make: Callable[[torch.Tensor], torch.Tensor], inference: bool) -> None:
    with torch.inference_mode(inference):
        made = make(x)
        assert made.is_pinned() and made.device == torch.device("cpu")
        assert made.pin_memory().data_ptr() == made.data_ptr()


def test_device_memory_cannot_be_pinned(x: torch.Tensor) -> None:
    with pytest.raises(RuntimeError, match="cannot pin"):
        x.pin_memory()


@pytest.mark.parametrize("name", [DEVICE, "cuda"])
def test_default_device(backend: EmulatedBackend, name: str) -> None:
    torch.set_default_device(name)
    try:
        made = [torch.zeros(2), torch.tensor([1]), torch.as_tensor([1]), torch.arange(3), torch.nn.Linear(1, 1).weight]
        host = torch.zeros(2, device="cpu")
    finally:
        torch.set_default_device(None)
    assert {tensor.device for tensor in made} == {torch.device(DEVICE)} and host.device == torch.device("cpu")


@pytest.mark.parametrize("name", [DEVICE, "cuda"])
def test_with_a_device(backend: EmulatedBackend, name: str) -> None:
    with torch.device(name):
        made = [torch.zeros(2), torch.tensor([1]), torch.nn.Linear(1, 1).weight]
    assert {tensor.device for tensor in made} == {torch.device(DEVICE)}
    assert torch.zeros(2).device == torch.device("cpu")


def test_modules_move(backend: EmulatedBackend) -> None:
    moves: list[Callable[[torch.nn.Module], torch.nn.Module]] = [
        lambda m: m.to(DEVICE), lambda m: m.to("cuda"), lambda m: m.cuda(), lambda m: m.to(DEVICE).half()
    ]  # fmt: skip
    for move in moves:
        module = move(torch.nn.BatchNorm1d(2))
        assert {t.device for t in (*module.parameters(), *module.buffers())} == {torch.device(DEVICE)}
        assert {t.device for t in module.cpu().parameters()} == {torch.device("cpu")}


def test_means_device() -> None:
    assert means_device(torch.device("cuda")) and means_device(torch.device("cpu", 0))
    assert not means_device(torch.device("cpu")) and not means_device(torch.device("meta"))


def test_meta_tensors_are_left_alone(x: torch.Tensor) -> None:
    meta = torch.zeros(2, device="meta")
    assert meta.device.type == "meta" and x.to("meta").device.type == "meta"


def test_a_tensor_class_with_operators_of_its_own_is_unwrapped_first(x: torch.Tensor) -> None:
    class Doubled(torch.Tensor):
        """Holds half of what it stands for."""

        kept: torch.Tensor

        @staticmethod
        def __new__(cls, inner: torch.Tensor) -> Doubled:
            made: Doubled = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
            made.kept = inner
            return made

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def, override]
            return func(*(a.kept * 2 if isinstance(a, Doubled) else a for a in args), **(kwargs or {}))

    graph: Any = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = Doubled(x) + 1
    graph.replay()
    assert torch.equal(y, x * 2 + 1)
    assert [node.operator.name for node in graph.recording.nodes] == ["aten.mul.Tensor", "aten.add.Tensor"]


def test_a_host_tensor_of_the_user_stays_one_when_it_is_copied_or_indexes(x: torch.Tensor) -> None:
    host, indices = torch.zeros(2, 3), torch.tensor([1])
    host.copy_(x)
    x[indices]
    assert host.device == indices.device == torch.device("cpu")


def test_watching_is_a_threads_own() -> None:
    device, seen = EmulatedDevice(), []
    with Watch(device):
        thread = threading.Thread(target=lambda: seen.append(watching(device)))
        thread.start()
        thread.join()
        assert watching(device) and not watching(EmulatedDevice()) and seen == [False]
    assert not watching(device)


def test_nor_does_a_default_device_make_it_a_temporary(x: torch.Tensor) -> None:
    class Copied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.host = torch.zeros(2, 3)

        def forward(self) -> None:
            x.copy_(self.host)

    torch.set_default_device("cpu")  # factories and copies then come through one line of torch
    modules = [Copied() for _ in range(20)]
    for module in modules:
        module()
    assert {place_of(module.host) for module in modules} == {Place.HOST}
