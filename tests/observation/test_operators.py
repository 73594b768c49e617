"""Operators as the dispatch mode sees them: which may be illegal, on which stream the others run."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch

from cudagraph_doctor.graph.illegal import Kind

DEVICE = "cpu:0"


def kinds(session: Any) -> list[tuple[str, Kind]]:
    return [(site.name, operations[0].kind) for site, operations in session.candidates.items()]


@pytest.mark.parametrize("inference", [False, True])
def test_composite_operators_are_seen_as_what_they_are_made_of(rig: Any, inference: bool) -> None:
    with torch.inference_mode(inference):
        x = torch.ones(3, device=DEVICE)
        repeats = torch.ones(3, dtype=torch.int64, device=DEVICE)
        found = kinds(rig.dry(lambda: (x.repeat_interleave(repeats), torch.where(x > 0))))
    assert [kind for _, kind in found] == [Kind.SHAPE_FROM_VALUES] * 2
    assert found[0][0] == "aten.repeat_interleave.Tensor"


def test_what_is_legal_is_no_candidate(rig: Any) -> None:
    x, pinned = torch.ones(3, device=DEVICE), torch.ones(3).pin_memory()

    def body() -> None:
        x.copy_(pinned, non_blocking=True)
        x.to(torch.float64)
        x[x.argsort()]
        torch.rand(3, device=DEVICE)

    session = rig.dry(body)
    assert kinds(session) == [] and session.windows[0].launches == 5


def test_ordinals_and_positions_are_in_the_order_of_execution(rig: Any) -> None:
    x = torch.ones(3, device=DEVICE)

    def body() -> None:
        for _ in range(2):
            x.nonzero()
        x.masked_select(x > 0)

    first, second = rig.dry(body).candidates.values()
    assert [operation.ordinal for operation in first] == [0, 1] and second[0].ordinal == 0
    assert first[0].position < first[1].position < second[0].position


def test_pinned_memory_by_a_factory(rig: Any) -> None:
    session = rig.dry(lambda: torch.empty(3, pin_memory=True))
    assert kinds(session) == [("aten.empty.memory_format", Kind.PINNED_ALLOCATION)]


def test_a_source_that_dies_and_one_that_stays(rig: Any) -> None:
    x, stays, dies = torch.zeros(3, device=DEVICE), torch.ones(3).pin_memory(), [torch.ones(3).pin_memory()]

    def body() -> None:
        x.copy_(stays, non_blocking=True)
        x.copy_(dies.pop(), non_blocking=True)

    assert [source.is_gone() for source in rig.dry(body).host_sources] == [False, True]


def test_work_on_another_stream(rig: Any) -> None:
    x, side = torch.zeros(3, device=DEVICE), torch.cuda.Stream()

    def body() -> None:
        with torch.cuda.stream(side):
            x.add_(1)
            constant = torch.arange(3.0, device=DEVICE) * 2
        x.add_(constant)

    for session in (rig.dry(body), rig.capture(body)[0]):
        assert [operation.name for operation in session.outside] == ["aten.add_.Tensor"]
        assert session.outside[0].location and session.outside[0].location.code == "x.add_(1)"


def test_a_tensor_class_of_the_users_own(rig: Any) -> None:
    class Wrapped(torch.Tensor):
        held: torch.Tensor

        @classmethod
        def __torch_dispatch__(  # type: ignore[override]
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return func(*(arg.held if isinstance(arg, Wrapped) else arg for arg in args), **(kwargs or {}))

    wrapped = torch.Tensor._make_wrapper_subclass(Wrapped, (3,))
    wrapped.held = torch.ones(3, device=DEVICE)
    assert kinds(rig.dry(lambda: torch.ops.aten.nonzero(wrapped))) == [("aten.nonzero.default", Kind.SHAPE_FROM_VALUES)]


def test_the_dry_run_costs_no_more_than_ten_times_the_eager_step(rig: Any) -> None:
    x = torch.ones(64, 64, device=DEVICE)
    rows = torch.arange(8, device=DEVICE)

    def body() -> None:
        for _ in range(100):
            y = (x @ x).relu()
            x[rows] = y[:8]
            x.copy_(x.softmax(-1))

    def seconds(run: Any) -> float:
        started = time.perf_counter()
        run()
        return time.perf_counter() - started

    body()
    eager = min(seconds(body) for _ in range(3))
    with rig.hooks(dry=True), torch.cuda.graph(torch.cuda.CUDAGraph()):
        watched = min(seconds(body) for _ in range(3))
    assert watched <= 10 * eager, (watched, eager)
