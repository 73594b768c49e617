"""What a failed capture makes pointless, what the next check runs on, what --quick leaves out."""

from __future__ import annotations

from typing import Any

import pytest

from cudagraph_doctor.findings import Finding, Outcome, Proof, Severity, Status
from cudagraph_doctor.method import REFUSED, pointless, quickly, ready
from cudagraph_doctor.settings import Settings

PASSED = Outcome("capture", Status.PASSED)
FAILED = Outcome("capture", Status.FOUND, checked={REFUSED: 2})
EMPTY, GONE = (
    Outcome("capture", Status.FOUND, findings=(Finding(code, said, Severity.ERROR, Proof.MEASURED, "Mend it."),))
    for code, said in (("CGD215", "It is empty."), ("CGD216", "Its source is gone."))
)


class Engine:
    """Notes what is asked of it."""

    batch_sizes = (1, 2, 3, 4)

    def __init__(self) -> None:
        self.asked: list[str] = []

    def reset(self) -> None:
        self.asked.append("reset")

    def step(self, i: int, n: int) -> int:
        return n

    def graphs(self, on: bool) -> None:
        self.asked.append(f"graphs({on})")


class Recapturing(Engine):
    """Can capture anew."""

    def recapture(self) -> None:
        self.asked.append("recapture")


class Loop:
    """No engine."""

    buckets = (1, 2, 4)

    def next_inputs(self, step: int, n: int) -> None: ...
    def forward(self, inputs: Any) -> None: ...
    def reset(self) -> None: ...


def test_nothing_is_pointless_after_captures_that_pass() -> None:
    assert pointless("diff", [PASSED]) is None
    assert pointless("diff", []) is None
    assert pointless("capture", [FAILED]) is None


def test_captures_that_fail_leave_nothing_to_replay() -> None:
    skipped = pointless("inputs", [FAILED])
    assert skipped is not None and skipped.check == "inputs" and skipped.status is Status.SKIPPED
    assert "2 operations refused" in skipped.reason and skipped.fix


def test_empty_graphs_are_not_worth_comparing() -> None:
    skipped = pointless("diff", [EMPTY])
    assert skipped is not None and "holds no work" in skipped.reason


def test_copies_from_memory_that_is_gone_are_not_replayed() -> None:
    skipped = pointless("inputs", [GONE])
    assert skipped is not None and "host memory that is gone" in skipped.reason


def test_an_engine_captures_anew_before_the_next_check() -> None:
    engine = Recapturing()
    assert ready(engine, [PASSED], pytest.fail) is engine
    assert engine.asked == ["graphs(False)", "reset", "graphs(True)", "recapture"]


def test_an_engine_that_cannot_is_made_anew() -> None:
    other = Engine()
    assert ready(Engine(), [PASSED], lambda: other) is other


def test_the_first_check_and_a_loop_take_the_target_as_it_is() -> None:
    engine, loop = Engine(), Loop()
    assert ready(engine, [], pytest.fail) is engine and engine.asked == []
    assert ready(loop, [PASSED], pytest.fail) is loop


def test_quick_takes_the_ends_and_says_what_it_leaves() -> None:
    settings, left = quickly(Settings("checkup", quick=True), Loop())
    assert settings.buckets == (1, 4) and left == ["buckets 2: left out by --quick"]
    settings, left = quickly(Settings("checkup", quick=True), Engine())
    assert settings.batch_sizes == (4, 3, 1, 4) and left == ["batch sizes 2: left out by --quick"]


@pytest.mark.parametrize("settings", [Settings("checkup"), Settings("checkup", quick=True, buckets=(2,))])
def test_quick_leaves_alone_what_was_chosen(settings: Settings) -> None:
    assert quickly(settings, Loop()) == (settings, [])
