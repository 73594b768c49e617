"""What a session makes of what its hooks tell: who is the culprit, what was done, what is given."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import torch

from cudagraph_doctor.graph.emulation.faults import cuda_error
from cudagraph_doctor.graph.illegal import CaptureStatus, Kind
from cudagraph_doctor.graph.legality import Illegal
from cudagraph_doctor.observation.model import ToldBy
from cudagraph_doctor.observation.session import Session
from cudagraph_doctor.observation.values import Kept


class Nobody:
    current = "layers.3"


class Status:
    """A stream that does what it is told."""

    now = CaptureStatus.ACTIVE

    def __call__(self, stream: int) -> CaptureStatus:
        return self.now


def session(dry: bool = False, **more: Any) -> Any:
    made = Session(dry, True, more.pop("kept", Kept()), Nobody(), more.pop("status", Status()), **more)
    made.open(7, "global")
    return made


def read(result: Any) -> Illegal:
    return Illegal(Kind.HOST_READ)


def fail(error: BaseException) -> Any:
    raise error


def test_a_failure_carries_where_it_was_and_why() -> None:
    made, error = session(), cuda_error(900)
    with pytest.raises(RuntimeError):
        made.perform("Tensor.item", lambda: fail(error), read)
    failure = made.culprit(error)
    assert failure.operation.kind is Kind.HOST_READ and failure.operation.module == "layers.3"
    assert failure.told_by is ToldBy.CALL and "made.perform" in failure.operation.location.code


def test_the_culprit_raised_the_first_error_whatever_was_caught_before() -> None:
    made, caught, error = session(), RuntimeError("Cannot copy"), cuda_error(900)
    for each in (caught, error):
        with pytest.raises(RuntimeError):
            made.perform(f"op {each}", lambda each=each: fail(each), read)
    assert made.culprit(error).error is error
    assert made.culprit(None).error is caught


def test_who_finds_the_capture_broken_is_no_culprit() -> None:
    made, victim = session(), cuda_error(901)
    with pytest.raises(RuntimeError):
        made.perform("first", lambda: fail(cuda_error(900)), read)
    with pytest.raises(RuntimeError):
        made.issue("aten.add.Tensor", lambda: fail(victim))
    assert made.culprit(victim).operation.name == "first"
    assert session().culprit(None) is None


def test_a_capture_that_breaks_without_a_word() -> None:
    status = Status()
    made = session(status=status)

    def quietly() -> None:
        status.now = CaptureStatus.INVALIDATED

    made.perform("library.call", quietly, lambda result: None)
    assert made.culprit(None).told_by is ToldBy.STATUS and made.culprit(None).operation.name == "library.call"
    assert made.done == {}


def test_between_two_operations_nobody_is_named() -> None:
    status = Status()
    made = session(status=status)
    status.now = CaptureStatus.INVALIDATED
    assert made.is_captured(7)
    assert made.culprit(None).operation is None and made.culprit(None).told_by is ToldBy.STATUS


def test_values_are_given_in_the_place_of_what_is_known() -> None:
    kept = Kept()

    def play(made: Any, value: Callable[[int], Any]) -> list[int]:
        return [made.perform("Tensor.item", lambda number=number: value(number), read) for number in (1, 2)]

    results, sites = [], ()
    for dry in (True, False):
        made = session(dry, kept=kept, served=sites)
        results.append(play(made, int if dry else lambda number: fail(KeyError())))
        sites = tuple(made.candidates)
    assert results == [[1, 2], [1, 2]] and made.gave == 2


def test_what_returns_nothing_needs_no_value() -> None:
    served: tuple[Any, ...] = ()
    for _ in range(2):
        made = session(served=served)
        with suppress(RuntimeError):
            made.perform("torch.cuda.synchronize", lambda: fail(cuda_error(900)), read, returns_nothing=True)
        served = served or (made.failures[0].site,)
    assert made.gave == 1 and made.failures == []


def test_inside_of_an_operation_nothing_else_counts() -> None:
    made = session(dry=True)

    def outer() -> None:
        assert made.busy
        made.perform("inner", lambda: None, read)

    made.perform("outer", outer, read)
    assert [site.name for site in made.candidates] == ["outer"] and not made.busy


def test_calls_of_cuda_that_failed_are_kept_while_a_capture_is_open() -> None:
    made = session()
    made.call_failed("cudaMalloc", 900)
    made.close()
    made.call_failed("cudaFree", 900)
    assert [(call.name, call.code, call.operation.kind) for call in made.failed_calls] == [
        ("cudaMalloc", 900, Kind.ALLOCATION)
    ]


def test_constants_made_elsewhere_are_no_loss() -> None:
    made = session()
    constant, state = torch.zeros(2), torch.zeros(2)
    made.made_outside([constant])
    made.went_outside("aten.fill_", 9, [constant], [constant])
    made.went_outside("aten.add_", 9, [state], [state])
    assert [operation.name for operation in made.outside] == ["aten.add_"]
