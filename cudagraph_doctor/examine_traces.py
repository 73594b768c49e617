"""Traces -> Report: runs `buckets` in this process (nothing of the user's runs, and no torch is needed)."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cudagraph_doctor import environment
from cudagraph_doctor.checks import bucket_hits
from cudagraph_doctor.display import Display
from cudagraph_doctor.findings import Outcome, Report
from cudagraph_doctor.misses.judged import Demands


def examine_traces(paths: Sequence[Path], demands: Demands, step_pattern: str, display: Display) -> Report:
    """The report. Raises UsageError or Inconclusive, as `bucket_hits.run` does."""
    started = time.time()
    with display:
        outcome = bucket_hits.run(paths, demands, step_pattern, _Quiet(display))
    settings: dict[str, Any] = {"check": bucket_hits.NAME, "step_pattern": step_pattern, **dataclasses.asdict(demands)}
    return Report(
        tool=environment.tool(started),
        environment=environment.base(),
        target={"spec": " ".join(path.name for path in paths)},
        outcomes=(outcome,),
        settings=settings,
    )


def outcome_of_traces(paths: Sequence[Path], display: Display) -> Outcome:
    """What `buckets` says of traces of which nothing is demanded. Raises as `bucket_hits.run` does."""
    return bucket_hits.run(paths, Demands(), "", _Quiet(display))


class _Quiet:
    """A `Progress` that shows on a display; `buckets` has nothing to put into a journal."""

    def __init__(self, display: Display) -> None:
        self.say = display.say
        self.stage = display.stage
        self._advance = display.advance

    def advance(self, text: str = "") -> None:
        """See `Progress.advance`."""
        self._advance(text)

    def journal(self, finding: object) -> None:
        """See `Progress.journal`."""

    def journal_clear(self) -> None:
        """See `Progress.journal_clear`."""
