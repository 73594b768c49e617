"""How a check begins: the plan, the subject, the estimate."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cudagraph_doctor.errors import Inconclusive, UsageError
from cudagraph_doctor.graph.emulated import EmulatedBackend
from cudagraph_doctor.proof.arms import Arms
from cudagraph_doctor.proof.start import discover, planned, subject_of, without_graph
from cudagraph_doctor.settings import Settings


class Loop:
    """Doubles."""

    buckets = (2,)

    def __init__(self, device: str) -> None:
        self.seen = torch.zeros(2, device=device)

    def next_inputs(self, step: int, n: int) -> torch.Tensor:
        return torch.arange(n).float() + step

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen[: len(x)].add_(x)
        return x * 2

    def reset(self) -> None:
        self.seen.zero_()


class Told:
    """Keeps what progress is told."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: None


def test_steps_without_a_graph_are_told_apart() -> None:
    backend = EmulatedBackend()
    with backend.installed():
        subject = subject_of(Loop(backend.device), backend)
        plan, served = planned(subject, Settings(check="diff", batch_sizes=(3, 2, 1), steps=3))
        assert [(at.index, at.step, at.rows) for at in served] == [(0, 1, 2), (1, 2, 1)]
        (step,) = without_graph(plan)
        assert (step.rows, step.verdict) == (3, "inconclusive") and "above the largest bucket" in step.detail["reason"]
        with pytest.raises(Inconclusive, match="no step of the plan is served by a graph"):
            planned(subject, Settings(check="diff", batch_sizes=(3,), steps=1))


def test_an_output_that_nobody_puts_out_is_refused_after_one_step() -> None:
    backend = EmulatedBackend()
    with backend.installed(), torch.no_grad():
        loop = Loop(backend.device)
        subject = subject_of(loop, backend)
        _, served = planned(subject, Settings(check="diff", steps=2))
        with pytest.raises(UsageError, match='"logit", which the step does not put out'):
            discover(Arms(subject, backend), served, Told(), 3, ("", "logit"))
        once = loop.next_inputs(served[0].step, served[0].rows)
        assert torch.equal(loop.seen[: len(once)], once), "no second step was run"


def test_the_estimate_comes_first_and_too_little_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    backend, told = EmulatedBackend(), Told()
    with backend.installed(), torch.no_grad():
        subject = subject_of(Loop(backend.device), backend)
        _, served = planned(subject, Settings(check="diff", steps=2))
        arms = Arms(subject, backend)
        discover(arms, served, told, runs=3)
        assert "each run 3 times or more" in told.said[0] and arms.found.state
        monkeypatch.setattr(backend, "free_bytes", lambda: 1)
        with pytest.raises(Inconclusive, match="not enough free device memory"):
            discover(Arms(subject, backend), served, told, runs=3)
