"""The tensor methods that had to be replaced."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cudagraph_doctor.graph.emulated import EmulatedBackend

DEVICE = "cpu:0"


@pytest.fixture
def x(backend: EmulatedBackend) -> torch.Tensor:
    """A device tensor."""
    return torch.arange(4.0, device=DEVICE)


def test_to_the_device_where_it_is_already_does_not_copy(x: torch.Tensor) -> None:
    other = torch.zeros(1, device=DEVICE)
    for same in (x.to(DEVICE), x.to("cuda"), x.to(torch.device(DEVICE)), x.to(device=DEVICE), x.cuda(), x.to(other)):
        assert same is x
    assert x.to(0) is x and x.to(None) is x
    assert x.to(DEVICE, copy=True).data_ptr() != x.data_ptr() and x.to(DEVICE, torch.float64).dtype == torch.float64


def test_to_the_host_always_copies(x: torch.Tensor) -> None:
    for host in (x.cpu(), x.to("cpu"), x.to(torch.zeros(1)), x.to("cpu", non_blocking=True), x.to(device="cpu")):
        assert host.data_ptr() != x.data_ptr() and host.device.index is None
        assert torch.equal(host, torch.arange(4.0))
    assert x.to("cpu", torch.int32).dtype == torch.int32 and x.to(torch.zeros(1, dtype=torch.half)).dtype == torch.half


def test_host_tensors_are_not_copied_to_the_host(backend: EmulatedBackend) -> None:
    host = torch.zeros(2)
    assert host.cpu() is host and host.to("cpu") is host and host.to(torch.float32) is host
    assert host.to(torch.float64).device == torch.device("cpu") and host.to(dtype=torch.int64).dtype == torch.int64


def test_to_a_type_only(x: torch.Tensor) -> None:
    assert x.to(torch.int64).device == torch.device(DEVICE) and x.to(dtype=torch.int64).dtype == torch.int64
    assert x.double().device == x.type(torch.int32).device == torch.device(DEVICE)


def test_gradients_pass_through_moves(backend: EmulatedBackend) -> None:
    host = torch.ones(2, requires_grad=True)
    host.to(DEVICE).mul(3).cpu().sum().backward()
    assert host.grad is not None and host.grad.tolist() == [3, 3]


def test_arrays_are_the_hosts_only(x: torch.Tensor) -> None:
    refused: list[Callable[[], Any]] = [lambda: x.numpy(), lambda: np.asarray(x)]
    for refuse in refused:
        with pytest.raises(TypeError, match=r"Use Tensor.cpu\(\)"):
            refuse()
    array = x.numpy(force=True)
    array[0] = 9
    assert x[0].item() == 0 and x.cpu().numpy().tolist() == [0, 1, 2, 3] and torch.zeros(2).numpy().tolist() == [0, 0]


def test_values_on_the_host(x: torch.Tensor) -> None:
    number: Any = x[1].tolist()
    assert x.tolist() == [0, 1, 2, 3] and number == 1 and torch.ones(2).tolist() == [1, 1]


def test_repr(x: torch.Tensor) -> None:
    assert repr(x) == f"{x}" == "tensor([0., 1., 2., 3.])" and repr(torch.zeros(1)) == "tensor([0.])"
    assert f"{x[1]:.1f}" == "1.0"


def test_get_device_and_record_stream(x: torch.Tensor) -> None:
    assert x.get_device() == 0 and torch.zeros(1).get_device() == -1
    x.record_stream(torch.cuda.current_stream())


def test_as_tensor_does_not_copy_what_is_there(x: torch.Tensor) -> None:
    assert torch.as_tensor(x) is x and torch.as_tensor(x, device=DEVICE) is x and torch.asarray(x) is x
    array = np.zeros(2)
    torch.as_tensor(array)[0] = 5
    assert array[0] == 5 and torch.as_tensor(x, dtype=torch.int64, device="cpu").device == torch.device("cpu")
    assert torch.asarray(x, copy=True) is not x


def test_tensor_keeps_its_options(backend: EmulatedBackend) -> None:
    made = torch.tensor([1.0], dtype=torch.float64, device=DEVICE, requires_grad=True)
    assert made.dtype == torch.float64 and made.requires_grad and made.is_leaf
    assert torch.zeros(1, dtype=torch.int64, device=DEVICE).new_tensor([1.5]).dtype == torch.int64


@pytest.mark.parametrize("place", ["cuda", DEVICE, torch.device("cuda", 0)])
def test_load_onto_the_device(x: torch.Tensor, tmp_path: Path, place: Any) -> None:
    module = torch.nn.BatchNorm1d(2)
    torch.save({"x": [x, torch.ones(2)], "module": module.state_dict()}, tmp_path / "weights.pt")
    torch.save(module, tmp_path / "module.pt")
    loaded = torch.load(tmp_path / "weights.pt", map_location=place)
    whole = torch.load(tmp_path / "module.pt", map_location=place, weights_only=False)
    tensors = [*loaded["x"], *loaded["module"].values(), *whole.parameters(), *whole.buffers()]
    assert len(tensors) == 12 and {tensor.device for tensor in tensors} == {torch.device(DEVICE)}
    assert torch.equal(loaded["x"][0], x)


def test_load_onto_the_host(x: torch.Tensor, tmp_path: Path) -> None:
    torch.save(x, tmp_path / "x.pt")
    for options in ({}, {"map_location": "cpu"}, {"map_location": lambda storage, location: storage}):
        assert torch.load(tmp_path / "x.pt", **options).device == torch.device("cpu")


def test_one_hot_as_on_cuda(x: torch.Tensor) -> None:
    wide = torch.nn.functional.one_hot(x.long(), 5)
    assert wide.dtype == torch.int64 and wide.argmax(-1).tolist() == [0, 1, 2, 3] and wide.shape == (4, 5)
    assert torch.nn.functional.one_hot(x.long()).shape == (4, 4)
    assert torch.nn.functional.one_hot(torch.tensor(2), 3).tolist() == [0, 0, 1]
