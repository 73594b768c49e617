"""Buffers that an engine replaces before anybody took down the names: found by what belongs in them."""

from __future__ import annotations

import pytest
import torch

from cudagraph_doctor.checks import eager_diff, replay_inputs
from cudagraph_doctor.findings import Outcome, Proof
from cudagraph_doctor.graph.emulated import EmulatedBackend
from cudagraph_doctor.progress import Silent
from cudagraph_doctor.settings import Settings


class Replacing:
    """Puts a new buffer in the place of the captured one as soon as all is captured."""

    batch_sizes = (4, 3)

    def __init__(self, device: str) -> None:
        self.device = device
        self.table = torch.arange(4.0, device=device)
        self.index = torch.zeros(4, device=device, dtype=torch.int64)
        self.other = torch.ones(4, device=device)
        self.capture()

    def recapture(self) -> None:
        self.capture()

    def capture(self) -> None:
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.out = self.table[self.index] + self.other
        self.replace()

    def replace(self) -> None:
        self.index = torch.zeros(4, device=self.device, dtype=torch.int64)

    def reset(self) -> None:
        pass

    def graphs(self, on: bool) -> None:
        self.on = on

    def step(self, i: int, n: int) -> torch.Tensor:
        index = (torch.arange(n, device=self.device) + i) % 4
        if not self.on:
            return self.table[index] + self.other[:n]
        self.index[:n].copy_(index)
        self.graph.replay()
        return self.out[:n].clone()


class ReplacingOnce(Replacing):
    """Captures at start-up alone."""

    recapture = None  # type: ignore[assignment]


class NewHead(Replacing):
    """Assigns a new weight behind its captures."""

    def __init__(self, device: str) -> None:
        self.head = torch.nn.Parameter(torch.arange(1.0, 5.0, device=device))
        super().__init__(device)

    def capture(self) -> None:
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.out = self.table[self.index] * self.head
        self.head = torch.nn.Parameter(self.head.detach() * -2)

    def step(self, i: int, n: int) -> torch.Tensor:
        self.index[:n].copy_((torch.arange(n, device=self.device) + i) % 4)
        if not self.on:
            return self.table[self.index[:n]] * self.head[:n]
        self.graph.replay()
        return self.out[:n].clone()


class Keeping(Replacing):
    """Leaves the buffer where it is."""

    def replace(self) -> None:
        pass


def outcome(check: str, engine: type[Replacing]) -> Outcome:
    backend = EmulatedBackend()
    run = {"diff": eager_diff.run, "inputs": replay_inputs.run}[check]
    with backend.installed(), torch.no_grad():
        return run(engine(backend.device), backend, Settings(check=check, steps=4), Silent())


@pytest.mark.parametrize("engine", [Replacing, ReplacingOnce])
@pytest.mark.parametrize(("check", "code"), [("diff", "CGD101"), ("inputs", "CGD305")])
def test_a_buffer_replaced_behind_the_captures_is_named(check: str, code: str, engine: type[Replacing]) -> None:
    (finding,) = outcome(check, engine).findings
    assert (finding.code, finding.proof) == (code, Proof.CONFIRMED)
    assert finding.culprit is not None and finding.culprit.name == "index"


@pytest.mark.parametrize(("check", "code"), [("diff", "CGD101"), ("inputs", "CGD308")])
def test_a_weight_replaced_behind_the_captures_is_named(check: str, code: str) -> None:
    (finding,) = outcome(check, NewHead).findings
    assert (finding.code, finding.proof) == (code, Proof.CONFIRMED)
    assert finding.culprit is not None and (finding.culprit.kind, finding.culprit.name) == ("weight", "head")


@pytest.mark.parametrize("check", ["diff", "inputs"])
def test_a_buffer_that_stays_is_nobodys_fault(check: str) -> None:
    assert not outcome(check, Keeping).findings
