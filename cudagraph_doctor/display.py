"""What a run shows on stderr while it runs: a moving bar on a terminal, a line now and then elsewhere.

Nothing moves in the first two seconds: short runs stay quiet.
"""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from cudagraph_doctor.report.printable import printable

QUIET_S = 2.0
LINE_EVERY_S = 5.0


class Display:
    """Lines on stderr, throttled: for logs and CI. Also the interface that `Bar` shares."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._last_line = 0.0
        self._stage = ""
        self._done = 0
        self._total = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def say(self, text: str) -> None:
        """A line for the user, at once."""
        print(f"cudagraph-doctor: {printable(text)}", file=sys.stderr, flush=True)

    def stage(self, text: str, total: int) -> None:
        """A part of the work begins; `total` 0 if its length is unknown."""
        self._stage, self._done, self._total = text, 0, total
        self._moved("")

    def advance(self, text: str) -> None:
        """One unit is done, `text` comes next."""
        self._done += 1
        self._moved(text)

    def output(self, text: str) -> None:
        """Something that the target printed."""
        sys.stderr.write(text)
        sys.stderr.flush()

    def _moved(self, text: str) -> None:
        now = time.monotonic()
        if now - self._started < QUIET_S or now - self._last_line < LINE_EVERY_S:
            return
        self._last_line = now
        count = f" {self._done}/{self._total}" if self._total else ""
        self.say(f"{self._stage}{count}{': ' + text if text else ''} ({now - self._started:.0f} s)")


class Bar(Display):
    """A bar on the terminal, gone when the run is over."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            redirect_stdout=False,
        )
        self._task: TaskID | None = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the bar."""
        self._bar.stop()

    def _moved(self, text: str) -> None:
        if time.monotonic() - self._started < QUIET_S:
            return
        if self._task is None:
            self._bar.start()
            self._task = self._bar.add_task("")
        description = printable(f"{self._stage}: {text}" if text else self._stage)
        self._bar.update(self._task, description=description, completed=self._done, total=self._total or None)


def for_stderr() -> Display:
    """The display that fits where stderr goes."""
    console = Console(stderr=True)
    return Bar(console) if console.is_terminal else Display()
