"""Parameters as bytes and back."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest
import torch

from cudagraph_doctor.errors import Inconclusive
from cudagraph_doctor.graph.backend import Edit
from cudagraph_doctor.graph.emulated import EmulatedBackend
from cudagraph_doctor.graph.emulation.parameters import encode, plain, slots, views

DEVICE = "cpu:0"
Capture = Callable[[Callable[[], object]], Any]


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (None, b""),
        (True, b"\x01"),
        (3, struct.pack("<q", 3)),
        (-1, b"\xff" * 8),
        (1 << 70, str(1 << 70).encode()),
        (2.5, struct.pack("<d", 2.5)),
        (1 + 2j, struct.pack("<dd", 1, 2)),
        ([1, 2], struct.pack("<qq", 1, 2)),
        ("sum", b"sum"),
        (torch.float16, b"torch.float16"),
    ],
)
def test_plain_values_as_bytes(value: Any, data: bytes) -> None:
    assert encode(value) == data


def test_tensors_as_bytes(backend: EmulatedBackend) -> None:
    x, pinned = torch.zeros(2, device=DEVICE), torch.zeros(2, pin_memory=True)
    address = struct.pack("<Q", x.data_ptr())
    assert encode(x) == address and encode([None, x]) == bytes(8) + address
    assert encode(pinned) == struct.pack("<Q", pinned.data_ptr())
    assert encode(torch.tensor([1, 2], dtype=torch.int16)) == b"\x01\0\x02\0" and encode(torch.zeros(0)) == b""


def test_python_values(backend: EmulatedBackend) -> None:
    x = torch.zeros(2, device=DEVICE)
    assert plain(torch.tensor(2.5)) == 2.5 and plain(torch.zeros(3)) is None
    assert plain(x) is None and plain([x]) is None and plain([1, True]) == [1, True] and plain("sum") == "sum"
    assert plain(torch.float16) == "torch.float16" and plain(None) is None


def test_slots_have_the_schemas_positions(capture: Capture) -> None:
    x = torch.zeros(2, device=DEVICE)
    (node,) = capture(lambda: torch.add(x, 3, alpha=2)).recording.nodes
    assert [(slot.index, slot.name) for slot in slots(node)] == [(0, "self"), (1, "other"), (2, "alpha"), (3, "out")]
    (node,) = capture(lambda: x.topk(1)).recording.nodes
    assert [(slot.index, slot.name) for slot in slots(node)][-2:] == [(5, "out0"), (6, "out1")]


def run(backend: EmulatedBackend, graph: torch.cuda.CUDAGraph, *edits: Edit) -> None:
    """Replay with edits."""
    with backend.patched(backend.log.graphs[-1], edits):
        graph.replay()


def test_a_number_by_value_and_by_bytes(backend: EmulatedBackend, capture: Capture) -> None:
    x = torch.zeros(2, device=DEVICE)
    graph = capture(lambda: x.add_(3))
    run(backend, graph, Edit(0, 1, value=10))
    run(backend, graph, Edit(0, 1, data=struct.pack("<q", 100)))
    assert x.tolist() == [110, 110]
    graph.replay()
    assert x.tolist() == [113, 113], "the old number is back"


def test_other_kinds_of_values(backend: EmulatedBackend, capture: Capture) -> None:
    x, y = torch.zeros(2, 2, device=DEVICE), torch.zeros(2, device=DEVICE)
    graph = capture(lambda: y.copy_(x.mul(2.0).add(torch.tensor(1.0)).sum([0], keepdim=False)))
    run(backend, graph, Edit(1, 1, data=struct.pack("<f", 5.0)))
    assert y.tolist() == [10, 10]
    run(backend, graph, Edit(1, 1, value=7.0), Edit(0, 1, data=struct.pack("<d", 1.0)))
    assert y.tolist() == [14, 14]
    x.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    run(backend, graph, Edit(2, 1, data=struct.pack("<q", 1)))
    assert y.tolist() == [8, 16]


def test_an_address(backend: EmulatedBackend, capture: Capture) -> None:
    old, new, out = (torch.full((4,), value, device=DEVICE) for value in (1.0, 2.0, 0.0))
    graph = capture(lambda: out[:2].copy_(old[2:]))
    run(backend, graph, Edit(0, 1, data=struct.pack("<Q", new[1:].data_ptr())))
    assert out.tolist() == [2, 2, 0, 0]
    graph.replay()
    assert out.tolist() == [1, 1, 0, 0]


def test_addresses_in_a_list_and_of_a_result(backend: EmulatedBackend, capture: Capture) -> None:
    a, b = torch.ones(2, device=DEVICE), torch.full((2,), 2.0, device=DEVICE)
    elsewhere = torch.zeros(4, device=DEVICE)
    graph = capture(lambda: torch.cat([a, a]))
    edits = (
        Edit(0, 0, data=struct.pack("<QQ", b.data_ptr(), a.data_ptr())),
        Edit(0, 2, data=struct.pack("<Q", elsewhere.data_ptr())),
    )
    run(backend, graph, *edits)
    assert elsewhere.tolist() == [2, 2, 1, 1]


def test_the_size_of_a_view(backend: EmulatedBackend, capture: Capture) -> None:
    x, total = torch.ones(4, 6, device=DEVICE), torch.zeros((), device=DEVICE)
    graph = capture(lambda: total.copy_(x[:, :2].sum()))
    assert views(x) == struct.pack("<4q", 4, 6, 6, 1) and views([x[0], total]) == struct.pack("<2q", 6, 1)
    assert views(torch.zeros(3)) == views(3.0) == b""
    run(backend, graph, Edit(0, 0, data=struct.pack("<Q4q", x.data_ptr(), 4, 5, 6, 1)))
    assert total.item() == 20
    with (
        pytest.raises(Inconclusive, match=r"of shape \(4, 7\)"),
        backend.patched(backend.log.graphs[-1], [Edit(0, 0, data=struct.pack("<Q4q", x.data_ptr(), 4, 7, 6, 1))]),
    ):
        pass


def test_edits_that_cannot_be_made(backend: EmulatedBackend, capture: Capture) -> None:
    x, small = torch.zeros(4, device=DEVICE), torch.zeros(2, device=DEVICE)
    graph = capture(lambda: x.add_(3).sum(dtype=torch.float64))
    live = backend.log.graphs[-1]
    for edit, message in (
        (Edit(7, 0), "has no node 7"),
        (Edit(0, 9), "aten.add_.Tensor has no parameter 9"),
        (Edit(0, 0, data=struct.pack("<Q", 64)), "no device memory for a tensor of shape"),
        (Edit(0, 0, data=struct.pack("<Q", small.data_ptr())), "no device memory for a tensor of shape"),
        (Edit(0, 0, data=struct.pack("<Q", x.data_ptr() + 1)), "no device memory for a tensor of shape"),
        (Edit(1, 1, data=b"torch.float32"), "cannot be set from bytes"),
    ):
        with pytest.raises(Inconclusive, match=message), backend.patched(live, [edit]):
            pass
    graph.replay()
    assert x.tolist() == [3] * 4


def test_the_old_parameters_are_back_after_an_error(backend: EmulatedBackend, capture: Capture) -> None:
    x = torch.zeros(1, device=DEVICE)
    graph = capture(lambda: x.add_(3))
    with pytest.raises(KeyError), backend.patched(backend.log.graphs[-1], [Edit(0, 1, value=10)]):
        raise KeyError
    graph.replay()
    assert x.item() == 3
