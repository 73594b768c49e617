"""The work of the child, without a process around it: what each failure becomes."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cudagraph_doctor import environment, worker
from cudagraph_doctor.errors import Inconclusive, UsageError
from cudagraph_doctor.findings import Finding, Outcome, Proof, Severity, Status
from cudagraph_doctor.settings import Settings

Write = Callable[[str, str], Path]
Event = dict[str, Any]

TARGET = """
import sys
imported_under_hooks = sys.hooks_are_in
class target:
    def __init__(self, device): self.device = device
    def reset(self): ...
    def step(self, i, n): ...
    def graphs(self, on): ...
    def interlude(self): ...
"""


class FakeBackend:
    name = "emulated"
    device = "cpu:0"

    @contextmanager
    def installed(self) -> Iterator[None]:
        sys.hooks_are_in = True  # type: ignore[attr-defined]
        try:
            yield
        finally:
            sys.hooks_are_in = False  # type: ignore[attr-defined]


@pytest.fixture
def perform(in_folder: Write, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Event]]:
    """Runs `worker.perform` with a check that does what it is given; returns the events."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(environment, "cuda_obstacle", lambda: "no GPU")
    backend = types.ModuleType("cudagraph_doctor.graph.emulated")
    backend.EmulatedBackend = FakeBackend  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, backend.__name__, backend)
    check = types.ModuleType("cudagraph_doctor.checks.eager_diff")
    check.RULES = ("CGD101",)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, check.__name__, check)
    in_folder("worker_target.py", TARGET)

    def run(does: Callable[..., Any], checks: tuple[str, ...] = ("diff",), **settings: Any) -> list[Event]:
        check.run = does  # type: ignore[attr-defined]
        events: list[Event] = []
        try:
            worker.perform(Settings("diff", **{"spec": "worker_target.py", **settings}), checks, events.append)
        finally:
            sys.modules.pop("worker_target", None)
        return events

    return run


def passes(target: Any, backend: Any, settings: Settings, progress: Any) -> Outcome:
    assert target.device == backend.device
    assert sys.hooks_are_in  # type: ignore[attr-defined]
    assert sys.modules["worker_target"].imported_under_hooks
    return Outcome("diff", Status.PASSED)


def raising(error: BaseException) -> Callable[..., Outcome]:
    def check(*arguments: Any) -> Outcome:
        raise error

    return check


def only(events: list[Event], kind: str) -> Event:
    [event] = [event for event in events if event["event"] == kind]
    return event


def test_events_of_a_good_run(perform: Callable[..., list[Event]]) -> None:
    events = perform(passes)
    kinds = [event["event"] for event in events]
    assert kinds == ["stage", "backend", "stage", "target", "say", "journal_clear", "outcome"]
    assert only(events, "backend")["environment"]["backend_reason"] == "no GPU"
    assert only(events, "target")["target"]["form"] == "engine"
    assert "interludes" in only(events, "say")["text"]  # a slip in a name
    assert only(events, "outcome")["outcome"]["seconds"] > 0
    assert not sys.hooks_are_in  # type: ignore[attr-defined]


def test_emulation_that_was_asked_for_needs_no_reason(perform: Callable[..., list[Event]]) -> None:
    assert only(perform(passes, backend="emulated"), "backend")["environment"]["backend_reason"] == ""


def test_cuda_without_a_gpu(perform: Callable[..., list[Event]]) -> None:
    events = perform(passes, backend="cuda", checks=("diff", "diff"))
    outcomes = [event["outcome"] for event in events if event["event"] == "outcome"]
    assert [outcome["status"] for outcome in outcomes] == ["inconclusive", "inconclusive"]
    assert "no GPU" in outcomes[0]["reason"]


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (Inconclusive("No memory.", seen="3 bytes", fix="More."), "inconclusive", "No memory. Seen: 3 bytes."),
        (MemoryError(), "inconclusive", "Memory ran out"),
        (RuntimeError("[enforce fail] can't allocate memory: 9 bytes"), "inconclusive", "Memory ran out"),
        (RuntimeError("capture failed"), "inconclusive", "The target raised RuntimeError: capture failed"),
        (SystemExit(1), "inconclusive", "The target raised SystemExit: 1"),
    ],
)
def test_what_a_failure_becomes(
    perform: Callable[..., list[Event]], error: BaseException, status: str, said: str
) -> None:
    outcome = only(perform(raising(error)), "outcome")["outcome"]
    assert outcome["status"] == status
    assert said in outcome["reason"]
    assert outcome["fix"]
    assert outcome["traceback"]
    assert outcome["rules"] == ["CGD101"]


def test_a_bug_of_ours(perform: Callable[..., list[Event]]) -> None:
    outcome = only(perform(lambda *arguments: "no outcome"), "outcome")["outcome"]
    assert outcome["status"] == "errored"
    assert "A bug in cudagraph-doctor: TypeError" in outcome["reason"]


def test_usage_errors_of_a_check_are_refusals(perform: Callable[..., list[Event]]) -> None:
    events = perform(raising(UsageError("Bad bucket.", seen="3", fix="Another.", traceback="T")))
    assert only(events, "refused") == {
        "event": "refused",
        "what": "Bad bucket.",
        "seen": "3",
        "fix": "Another.",
        "traceback": "T",
    }
    assert not [event for event in events if event["event"] == "outcome"]


def test_a_target_that_cannot_be_loaded_is_a_refusal(perform: Callable[..., list[Event]]) -> None:
    assert "does not exist" in only(perform(passes, spec="nowhere.py"), "refused")["what"]


@pytest.mark.parametrize("text", ["an illegal memory access was encountered", "device-side assert triggered"])
def test_a_lost_device_ends_it_all(perform: Callable[..., list[Event]], text: str) -> None:
    events = perform(raising(RuntimeError(f"CUDA error: {text}")), checks=("diff", "diff"))
    assert text in only(events, "lost")["reason"]
    assert not [event for event in events if event["event"] == "outcome"]


def test_an_interrupt_passes(perform: Callable[..., list[Event]]) -> None:
    with pytest.raises(KeyboardInterrupt):
        perform(raising(KeyboardInterrupt()))


def test_the_relay_sends_everything() -> None:
    sent: list[Event] = []
    relay = worker.Relay(sent.append)
    relay.say("a")
    relay.stage("b", 3)
    relay.advance("c")
    relay.journal(Finding("CGD101", "m", Severity.ERROR, Proof.MEASURED, "f"))
    relay.journal_clear()
    assert [event["event"] for event in sent] == ["say", "stage", "advance", "journal", "journal_clear"]
    assert sent[3]["finding"]["code"] == "CGD101"


def test_hooks_that_cannot_be_taken_out_are_told(
    perform: Callable[..., list[Event]], monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def installed(self: FakeBackend) -> Iterator[None]:
        sys.hooks_are_in = True  # type: ignore[attr-defined]
        yield
        raise OSError("stuck")

    monkeypatch.setattr(FakeBackend, "installed", installed)
    events = perform(passes)
    assert only(events, "outcome")["outcome"]["status"] == "passed"
    assert "OSError: stuck" in events[-1]["text"]


REFUSED = """
def target(device):
    try:
        raise RuntimeError("CUDA error: operation not permitted when stream is capturing")  # .item()
    finally:
        raise RuntimeError("CUDA error: operation failed due to a previous error during capture")
"""


def test_a_capture_that_is_refused_while_the_target_is_made(perform: Callable[..., list[Event]]) -> None:
    Path("makes.py").write_text(REFUSED)
    outcome = only(perform(passes, spec="makes.py"), "outcome")["outcome"]
    assert outcome["status"] == "inconclusive"
    assert "makes.py captures while it is made, and that capture was refused" in outcome["reason"]
    assert "not permitted when stream is capturing, at makes.py:4 in target" in outcome["reason"]
    assert "`cudagraph-doctor capture makes.py`" in outcome["fix"]
    assert outcome["location"]["file"].endswith("makes.py") and outcome["location"]["line"] == 4
    assert "makes.py" in outcome["traceback"]
