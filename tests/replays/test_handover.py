"""Copies that nobody waits for: which ones are waited for, and what is said without a GPU."""

from __future__ import annotations

import torch

from cudagraph_doctor.findings import Proof
from cudagraph_doctor.graph.emulated import EmulatedBackend
from cudagraph_doctor.progress import Silent
from cudagraph_doctor.proof.arms import Arms
from cudagraph_doctor.proof.engine import EngineSubject
from cudagraph_doctor.proof.subject import Planned
from cudagraph_doctor.replays import handover
from cudagraph_doctor.replays.handover import UNTOLD, Waiting, handover_findings


class Engine:
    """Does nothing."""

    def __init__(self, device: str) -> None:
        self.device = device

    def reset(self) -> None:
        pass

    def graphs(self, on: bool) -> None:
        pass

    def step(self, i: int, n: int) -> torch.Tensor:
        return torch.zeros(n, device=self.device)


def test_without_a_gpu_it_is_said() -> None:
    backend = EmulatedBackend()
    with backend.installed():
        subject = EngineSubject(Engine(backend.device), backend)
        assert handover_findings(Arms(subject, backend), [Planned(0, 0, 1, 1)], Silent()) == []
    assert f"{UNTOLD}: needs a GPU" in subject.not_checked


def test_copies_on_the_host_are_not_waited_for() -> None:
    waited: list[int] = []
    with Waiting(wait=lambda: waited.append(1)):
        torch.zeros(2).copy_(torch.ones(2))
    assert not waited


def test_the_direction_decides_the_rule() -> None:
    for to_host, code in ((False, "CGD311"), (True, "CGD312")):
        waiting = Waiting()
        waiting.to_host = to_host
        found = handover._finding(Planned(2, 5, 3, 4), "engine.host", waiting, "cuda")
        assert (found.code, found.step, found.key, found.proof) == (code, 5, "4", Proof.CONFIRMED)
        assert found.culprit is not None and found.culprit.name == "engine.host"
