"""A replay may take the process along: what is to be said then is told before, and taken back after."""

from __future__ import annotations

from typing import Any

from cudagraph_doctor.findings import Finding
from cudagraph_doctor.progress import Progress
from cudagraph_doctor.proof import places
from cudagraph_doctor.proof.arms import Arms
from cudagraph_doctor.proof.scene import moved_names
from cudagraph_doctor.proof.subject import Planned
from cudagraph_doctor.proof.wording import failing_replay


class Danger:
    """Watches the replays of arms.

    Args:
        arms: theirs; they have to call `watch`.
        target: the user's.
        progress: keeps what is to be said, outside of the process.
    """

    def __init__(self, arms: Arms, target: Any, progress: Progress) -> None:
        self._arms = arms
        self._target = target
        self._progress = progress
        self._suspicion: tuple[int, Finding] | None = None
        self._present: Finding | None = None
        self._replays_before = 0

    @property
    def finding(self) -> Finding | None:
        """What to say of an error that is raised now; None if no replay was launched that could be to blame."""
        return self._present if self._arms.backend.log.replays > self._replays_before else None

    def suspect(self, at: Planned, finding: Finding) -> None:
        """Say this, should a further replay of step `at` be the end: a mended one must not take the finding along."""
        self._suspicion = (at.index, finding)

    def watch(self, at: Planned | None) -> None:
        """Step `at` is about to be replayed; None: the device is done with it."""
        if at is None:
            self._present = None
            self._progress.journal_clear()
            return
        if self._suspicion is None or self._suspicion[0] != at.index:
            moved, where = moved_names(self._arms, at), places.around(self._target, self._arms, at)
            self.suspect(at, failing_replay(at, moved, where, self._arms.backend.name))
        assert self._suspicion is not None
        self._present, self._replays_before = self._suspicion[1], self._arms.backend.log.replays
        self._progress.journal(self._present)
