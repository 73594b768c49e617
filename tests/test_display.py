"""What is shown on stderr while a run goes on."""

from __future__ import annotations

import io
import time

import pytest
from rich.console import Console

from cudagraph_doctor import display


class Clock:
    """A clock that the test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_short_runs_are_quiet(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with display.Display() as shown:
        shown.stage("steps", 3)
        clock.now += 1.9
        shown.advance("step 1")
    assert capsys.readouterr().err == ""


def test_lines_are_throttled(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with display.Display() as shown:
        shown.stage("steps", 30)
        for _ in range(120):
            clock.now += 0.1
            shown.advance("replay")
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "cudagraph-doctor: steps 20/30: replay (2 s)",
        "cudagraph-doctor: steps 70/30: replay (7 s)",
        "cudagraph-doctor: steps 120/30: replay (12 s)",
    ]


def test_what_is_said_comes_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    with display.Display() as shown:
        shown.say("48 steps, some 3 s")
        shown.output("from the target\n")
    assert capsys.readouterr().err == "cudagraph-doctor: 48 steps, some 3 s\nfrom the target\n"


def test_the_bar_comes_after_two_seconds_and_goes(clock: Clock) -> None:
    out = io.StringIO()
    with display.Bar(Console(file=out, force_terminal=True, width=80)) as bar:
        bar.stage("loading", 0)
        assert out.getvalue() == ""
        clock.now += 2.1
        bar.stage("steps", 4)
        bar.advance("step 1, [3] rows")
    assert "steps: step 1, [3] rows" in out.getvalue()
    assert "1/4" in out.getvalue()
    assert out.getvalue().endswith("\x1b[2K")  # its line is cleared


def test_a_bar_only_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert type(display.for_stderr()) is display.Display


def test_control_characters_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    display.Display().say("gone\x1b[2J")
    assert capsys.readouterr().err == "cudagraph-doctor: gone\\x1b[2J\n"
