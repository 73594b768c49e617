"""Copies that nobody waits for: which ones are mended, whose they are, and what is said without a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from cudagraph_doctor.findings import Proof
from cudagraph_doctor.graph.emulated import EmulatedBackend
from cudagraph_doctor.progress import Silent
from cudagraph_doctor.proof.arms import Arms
from cudagraph_doctor.proof.engine import EngineSubject
from cudagraph_doctor.proof.subject import Planned
from cudagraph_doctor.replays import handover
from cudagraph_doctor.replays.handover import UNTOLD, AtOnce, Copied, handover_findings


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


HERE = Path(__file__).resolve()


@pytest.fixture
def pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    """All memory of the host counts as pinned; "meta" stands in for a device."""
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda self: self.device.type == "cpu")
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)


def line_of(text: str) -> int:
    return 1 + next(n for n, line in enumerate(HERE.read_text().splitlines()) if line.strip().endswith(f"# {text}"))


@pytest.mark.usefixtures("pinned")
def test_copies_on_the_host_are_left_alone() -> None:
    waited: list[int] = []
    with AtOnce(wait=lambda: waited.append(1)) as mend:
        torch.zeros(2).copy_(torch.ones(2))
    assert not waited and not mend.mended


@pytest.mark.usefixtures("pinned")
def test_a_copy_to_the_device_is_known_by_name_and_lines() -> None:
    host, device = torch.zeros(2), torch.zeros(2, device="meta")
    address = host.untyped_storage().data_ptr()
    with AtOnce(names=lambda at: "engine.host" if at == address else "") as mend:
        host.fill_(3)  # written
        device.copy_(host[:2], non_blocking=True)  # copied
    (copied,) = mend.mended
    assert (copied.name, copied.to_host) == ("engine.host", False)
    assert copied.line is not None and (Path(copied.line.file), copied.line.line) == (HERE, line_of("copied"))
    assert mend.written[address].line == line_of("written")
    (found,) = [handover._finding(Planned(2, 5, 3, 4), [copied], mend, "cuda")]
    assert found.location == mend.written[address] and found.related == (copied.line,)


@pytest.mark.usefixtures("pinned")
def test_a_copy_out_of_a_buffer_reads_one_of_its_own() -> None:
    host, read = torch.zeros(2), list[int]()

    class Below(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.ops.aten.copy_.default:
                read.append(args[1].data_ptr())
            return func(*args, **(kwargs or {}))

    with Below(), AtOnce():  # type: ignore[no-untyped-call, unused-ignore]
        torch.zeros(2, device="meta").copy_(host)
    with Below(), AtOnce(only=[]):  # type: ignore[no-untyped-call, unused-ignore]
        torch.zeros(2, device="meta").copy_(host)
    assert read[0] != host.data_ptr() == read[1]


@pytest.mark.usefixtures("pinned")
def test_the_host_waits_behind_a_copy_to_it() -> None:
    waited, target = list[int](), torch.zeros(2)

    class Arriving(TorchDispatchMode):
        """Nothing comes from "meta"."""

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return args[0] if func is torch.ops.aten.copy_.default else func(*args, **(kwargs or {}))

    with Arriving(), AtOnce(wait=lambda: waited.append(1)) as mend:  # type: ignore[no-untyped-call, unused-ignore]
        target.copy_(torch.zeros(2, device="meta"))
    assert waited == [1] and [copied.to_host for copied in mend.mended] == [True]


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
    first, second = (handover._finding(Planned(0, 0, 1, 1), some, mend, "cuda") for some in groups)
    assert first.culprit is not None and (first.culprit.name, first.culprit.detail) == ("host", "host.a, host.b")
    assert second.culprit is not None and (second.code, second.culprit.name) == ("CGD312", "tokens")


def test_the_direction_decides_the_rule() -> None:
    for to_host, code in ((False, "CGD311"), (True, "CGD312")):
        copied, mend = Copied("", to_host, None), AtOnce()
        mend.mended = {copied: 0}
        found = handover._finding(Planned(2, 5, 3, 4), [copied], mend, "cuda")
        assert (found.code, found.step, found.key, found.proof) == (code, 5, "4", Proof.CONFIRMED)
        assert found.culprit is not None and found.culprit.name == "pinned memory"
