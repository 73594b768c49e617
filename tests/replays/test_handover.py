"""Copies that nobody waits for: who is at fault, and what is said without a GPU."""

from __future__ import annotations

import torch

from cudagraph_doctor.findings import Location, Proof
from cudagraph_doctor.graph.emulated import EmulatedBackend
from cudagraph_doctor.progress import Silent
from cudagraph_doctor.proof.arms import Arms
from cudagraph_doctor.proof.at_once import AtOnce, Copied
from cudagraph_doctor.proof.engine import EngineSubject
from cudagraph_doctor.proof.subject import Planned
from cudagraph_doctor.replays import handover
from cudagraph_doctor.replays.handover import UNTOLD, handover_findings


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


def test_what_has_to_be_mended_is_told_and_nothing_else() -> None:
    copies = [Copied(f"engine.host.{name}", False, None) for name in "abcd"]
    guilty = {copies[1], copies[3]}
    assert handover.needed(copies, lambda some: guilty <= set(some)) == [copies[1], copies[3]]


def test_the_buffers_of_one_object_are_one_fault() -> None:
    copies = [Copied("host.a", False, None), Copied("host.b", False, None), Copied("tokens", True, None)]
    groups = handover.one_fault_each(copies)
    assert [[copied.name for copied in some] for some in groups] == [["host.a", "host.b"], ["tokens"]]
    mend = AtOnce()
    mend.mended = dict.fromkeys(copies, 0)
    first, second = (handover._finding([Planned(0, 0, 1, 1)], some, mend, "cuda") for some in groups)
    assert first.culprit is not None and (first.culprit.name, first.culprit.detail) == ("host", "host.a, host.b")
    assert second.culprit is not None and (second.code, second.culprit.name) == ("CGD312", "tokens")


def test_the_direction_decides_the_rule() -> None:
    for to_host, code in ((False, "CGD311"), (True, "CGD312")):
        copied, mend = Copied("", to_host, None), AtOnce()
        mend.mended = {copied: 0}
        found = handover._finding([Planned(2, 5, 3, 4), Planned(3, 6, 3, 4)], [copied], mend, "cuda")
        assert (found.code, found.step, found.key, found.proof) == (code, 5, "4", Proof.CONFIRMED)
        assert found.culprit is not None and found.culprit.name == "pinned memory"
        assert found.evidence["seen_at_steps"] == [5, 6]


def test_the_line_that_rewrites_is_told_and_the_one_that_copies_beside_it() -> None:
    copied, mend = Copied("host", False, Location("engine.py", 9)), AtOnce()
    mend.mended, mend.written = {copied: 0x100}, {0x100: Location("engine.py", 7)}
    found = handover._finding([Planned(2, 5, 3, 4)], [copied], mend, "cuda")
    assert found.location == Location("engine.py", 7) and found.related == (copied.line,)
