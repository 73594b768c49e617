"""Calls that are dealt with as a whole, under the names that the user wrote."""

from __future__ import annotations

import threading
from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
import torch

from cudagraph_doctor.graph.illegal import Kind

DEVICE = "cpu:0"


def kinds(session: Any) -> list[tuple[str, Kind]]:
    return [(site.name, operations[0].kind) for site, operations in session.candidates.items()]


@pytest.mark.parametrize(
    ("call", "name", "kind"),
    [
        (lambda x: x[0].item(), "Tensor.item", Kind.HOST_READ),
        (lambda x: bool(x[0]), "Tensor.__bool__", Kind.HOST_READ),
        (lambda x: int(x[0]), "Tensor.__int__", Kind.HOST_READ),
        (lambda x: float(x[0]), "Tensor.__float__", Kind.HOST_READ),
        (lambda x: complex(x[0]), "Tensor.__complex__", Kind.HOST_READ),
        (lambda x: range(x.long()[0]), "Tensor.__index__", Kind.HOST_READ),
        (lambda x: x.tolist(), "Tensor.tolist", Kind.HOST_READ),
        (lambda x: x.cpu(), "Tensor.cpu", Kind.HOST_READ),
        (lambda x: print(x, file=StringIO()), "Tensor.__repr__", Kind.HOST_READ),
        (lambda x: f"{x[0]:.1f}", "Tensor.item", Kind.HOST_READ),
        (lambda x: torch.tensor([1.0], device=x.device), "torch.tensor", Kind.PAGEABLE_COPY),
        (lambda x: x.new_tensor([1.0]), "Tensor.new_tensor", Kind.PAGEABLE_COPY),
        (lambda x: torch.cuda.synchronize(), "torch.cuda.synchronize", Kind.SYNCHRONISATION),
        (lambda x: torch.accelerator.synchronize(), "torch.accelerator.synchronize", Kind.SYNCHRONISATION),
        (lambda x: torch.cuda.current_stream().synchronize(), "Stream.synchronize", Kind.SYNCHRONISATION),
        (lambda x: torch.cuda.current_stream().query(), "Stream.query", Kind.QUERY),
        (lambda x: torch.cuda.Event().synchronize(), "Event.synchronize", Kind.SYNCHRONISATION),
        (lambda x: torch.cuda.Event().query(), "Event.query", Kind.QUERY),
        (lambda x: torch.manual_seed(0), "torch.manual_seed", Kind.GENERATOR),
        (lambda x: torch.cuda.manual_seed_all(0), "torch.cuda.manual_seed_all", Kind.GENERATOR),
        (lambda x: torch.cuda.get_rng_state(), "torch.cuda.get_rng_state", Kind.GENERATOR),
        (lambda x: torch.ones(1).pin_memory(), "Tensor.pin_memory", Kind.PINNED_ALLOCATION),
        (
            lambda x: torch.cuda.current_stream().wait_stream(torch.cuda.Stream()),
            "Stream.wait_stream",
            Kind.UNCAPTURED_WORK,
        ),
    ],
)
def test_each_call_by_its_name(rig: Any, call: Callable[[torch.Tensor], object], name: str, kind: Kind) -> None:
    x = torch.ones(3, device=DEVICE)
    assert kinds(rig.dry(lambda: call(x))) == [(name, kind)]


def test_of_tensors_on_the_host_nothing_is_said(rig: Any) -> None:
    h = torch.ones(3)

    def body() -> None:
        h[0].item(), bool(h[0]), h.tolist(), h.cpu(), repr(h), torch.tensor([1.0]), h.new_tensor([1.0])

    assert kinds(rig.dry(body)) == []


def test_a_tensor_from_a_tensor_of_the_device_is_no_upload(rig: Any) -> None:
    x = torch.ones((), device=DEVICE)
    assert "torch.tensor" not in dict(kinds(rig.dry(lambda: torch.tensor(x, device=DEVICE))))


def test_outside_of_captures_nothing_is_noted(rig: Any) -> None:
    with rig.hooks(dry=True) as session:
        torch.ones(3, device=DEVICE).tolist()
        torch.cuda.synchronize()
    assert session.candidates == {}


def test_a_tie_to_the_legacy_stream(rig: Any) -> None:
    def body() -> None:
        torch.cuda.current_stream().wait_stream(torch.cuda.default_stream())

    [(site, operations)] = rig.dry(body).candidates.items()
    assert site.name == "Stream.wait_stream" and {operation.kind for operation in operations} == {Kind.UNCAPTURED_WORK}
    assert operations[0].detail == "on the legacy default stream"


def test_another_thread_counts_in_global_mode_only(rig: Any) -> None:
    event = torch.cuda.Event()

    def body() -> None:
        thread = threading.Thread(target=event.query, name="poller")
        thread.start()
        thread.join()

    [[operation]] = rig.dry(body).candidates.values()
    assert (operation.kind, operation.thread, operation.detail) == (Kind.OTHER_THREAD, "poller", "query")
    with rig.hooks(dry=True, error_mode="thread_local") as session, torch.cuda.graph(torch.cuda.CUDAGraph()):
        body()
    assert session.candidates == {}


def test_the_wrapped_calls_keep_their_names(rig: Any) -> None:
    with rig.hooks(dry=True):
        assert torch.cuda.synchronize.__name__ == "synchronize" and torch.cuda.Stream.query.__name__ == "query"


def test_checkpointing_is_told_from_the_users_own_reading(rig: Any) -> None:
    torchs: dict[str, Any] = {"__name__": "torch.utils.checkpoint", "torch": torch}
    exec(compile("def checkpoint(): return torch.cuda.get_rng_state()", "checkpoint.py", "exec"), torchs)
    [[operation]] = rig.dry(lambda: torchs["checkpoint"]()).candidates.values()
    assert operation.kind is Kind.GENERATOR and "preserve_rng_state=True" in operation.detail
    assert operation.location.file == __file__
    [[operation]] = rig.dry(lambda: torch.cuda.get_rng_state()).candidates.values()
    assert operation.detail == ""
