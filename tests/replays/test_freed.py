"""Memory of no owner that graphs read."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cudagraph_doctor.graph.emulated import EmulatedBackend
from cudagraph_doctor.progress import Silent
from cudagraph_doctor.proof.arms import Arm, Arms
from cudagraph_doctor.proof.reading import read
from cudagraph_doctor.proof.scene import look
from cudagraph_doctor.proof.start import discover, planned, subject_of
from cudagraph_doctor.replays.freed import Lost, lost
from cudagraph_doctor.settings import Settings


class Loop:
    """Adds a table that the captured step makes anew where it is not kept."""

    buckets = (2,)

    def __init__(self, device: str, keeps: bool, reads: bool = True) -> None:
        self.device = device
        self.reads = reads
        self.table: torch.Tensor | None = self.made() if keeps else None

    def made(self) -> torch.Tensor:
        return torch.full((2,), 3.0, device=self.device)

    def static_inputs(self, bucket: int) -> dict[str, Any]:
        return {"x": torch.zeros(bucket, device=self.device)}

    def next_inputs(self, step: int, n: int) -> dict[str, Any]:
        return {"x": torch.arange(n, device=self.device).float() + step}

    def prepare(self, static: Any, fresh: Any, bucket: int, capturing: bool) -> None:
        self.passing = self.made() if capturing else None

    def forward(self, inputs: dict[str, Any]) -> Any:
        table = self.table if self.table is not None else getattr(self, "passing", None)
        if table is None:
            table = self.made()
        scratch = table * 2
        return inputs["x"] + (scratch if self.reads else scratch.zero_())

    def reset(self) -> None:
        pass


def found(kind: type[Loop] = Loop, **how: bool) -> list[Lost]:
    backend = EmulatedBackend()
    with backend.installed(), torch.no_grad():
        loop = kind(backend.device, **how)
        subject = subject_of(loop, backend)
        _, plan = planned(subject, Settings(check="inputs", batch_sizes=(2,), steps=1))
        arms = Arms(subject, backend)
        discover(arms, plan, Silent(), 1)
        arms.begin(plan)
        arms.save()
        arms.run(Arm.EAGER, plan[0])
        for held in subject.held(plan[0]):
            for named in (held.tensors, held.small):  # the doctor holds what it can name
                named.pop("passing", None)
        held_now = look(arms, plan[0]).held
        return lost(arms, plan[0], held_now, read(arms, held_now))


def test_freed_memory_that_is_read_is_shown_by_force() -> None:
    (one,) = found(keeps=False)
    assert one.reader == "aten.mul.Tensor, parameter 0" and one.bytes == 8 and not one.owner


def test_freed_memory_without_effect_is_not_told() -> None:
    assert found(keeps=False, reads=False) == []


@pytest.mark.parametrize(("head", "belongs"), [([5.0, 5.0], "head"), ([4.0, 4.0], ""), ([5.0] * 1000, "")])
def test_the_weight_that_heals_the_step_belongs_there(head: list[float], belongs: str) -> None:
    class Weighted(Loop):
        """The captured table holds 3, and eager's, by now, holds 5."""

        def __init__(self, device: str, keeps: bool) -> None:
            super().__init__(device, keeps)
            self.head = torch.nn.Parameter(torch.tensor(head, device=device), requires_grad=False)

        def made(self) -> torch.Tensor:
            return torch.full((2,), 5.0, device=self.device)

        def prepare(self, static: Any, fresh: Any, bucket: int, capturing: bool) -> None:
            self.passing = torch.full((2,), 3.0, device=self.device) if capturing else None

    (one,) = found(Weighted, keeps=False)
    assert one.belongs == belongs


def test_a_step_that_is_right_has_all_that_belongs_there() -> None:
    (one,) = found(keeps=False)
    assert one.belongs == ""


def test_kept_memory_is_not_freed() -> None:
    assert found(keeps=True) == []
