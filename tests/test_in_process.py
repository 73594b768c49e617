"""Checks on objects, without a child: every way of giving a target, and every way of ending."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from cudagraph_doctor.errors import Inconclusive, TargetError
from cudagraph_doctor.findings import Report, Status
from cudagraph_doctor.in_process import Session, session
from cudagraph_doctor.settings import Settings

QUICK = Settings("diff", steps=2)


class Sound:
    """A step that adds up what it is given."""

    buckets = (1, 2)

    def __init__(self, device: str) -> None:
        self.total = torch.zeros(2, device=device)

    def reset(self) -> None:
        self.total.zero_()

    def next_inputs(self, step: int, n: int) -> dict[str, torch.Tensor]:
        return {"x": torch.arange(n) + step + 1.0}

    def forward(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        self.total[: len(inputs["x"])] += inputs["x"]
        return self.total[: len(inputs["x"])] * 2


class Forgetful(Sound):
    """Stages nothing."""

    def update(self, static: Any, fresh: Any) -> None:
        pass


def examined(make: Callable[[Session], object], settings: Settings = QUICK) -> Report:
    with session("emulated") as opened:
        return opened.examine(make(opened), settings)


def test_a_class_that_makes_one() -> None:
    report = examined(lambda opened: Sound)
    assert [outcome.status for outcome in report.outcomes] == [Status.PASSED]
    assert report.environment["backend"] == "emulated"
    assert report.target["spec"] == f"{__name__}:Sound"
    assert report.target["form"] == "loop"


def test_an_object_that_was_made_in_the_block() -> None:
    report = examined(lambda opened: Sound(opened.device))
    assert report.outcomes[0].status is Status.PASSED
    assert report.target["spec"].endswith(".Sound")


def test_a_function_of_no_module_has_a_name_too() -> None:
    def make(device: str) -> Sound:
        return Sound(device)

    assert examined(lambda opened: make).target["spec"].endswith("<locals>.make")


def test_a_spec(in_folder: Callable[[str, str], Path]) -> None:
    report = examined(lambda opened: "reference:loop", Settings("diff", steps=1, target_args={"preset": "tiny"}))
    assert report.outcomes[0].status is Status.PASSED
    assert report.target["spec"] == "reference:loop"


def test_a_fault_is_found_and_named() -> None:
    report = examined(lambda opened: Forgetful)
    assert {finding.code for finding in report.findings} >= {"CGD102"}
    assert report.findings[0].culprit is not None and report.findings[0].culprit.name == "x"


def test_what_keeps_no_contract_is_raised() -> None:
    with pytest.raises(TargetError, match="is no target"):
        examined(lambda opened: object())


class Raising(Sound):
    """Its step raises what it is told."""

    error: BaseException = KeyError("x")

    def forward(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        raise self.error


def test_what_the_target_raises_is_inconclusive_and_names_the_line() -> None:
    [outcome] = examined(lambda opened: Raising).outcomes
    assert outcome.status is Status.INCONCLUSIVE
    assert outcome.location is not None and outcome.location.code == "raise self.error"


def test_a_lost_device_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Raising, "error", RuntimeError("CUDA error: an illegal memory access was encountered"))
    [outcome] = examined(lambda opened: Raising).outcomes
    assert outcome.status is not Status.PASSED
    assert "illegal memory access" in outcome.reason


def test_hooks_are_out_afterwards() -> None:
    graph = torch.cuda.CUDAGraph
    with session("emulated"):
        assert torch.cuda.CUDAGraph is not graph
    assert torch.cuda.CUDAGraph is graph


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there() -> None:
    with pytest.raises(Inconclusive, match="asked for and cannot be used here"), session("cuda"):
        pass
