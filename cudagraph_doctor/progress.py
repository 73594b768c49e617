"""How a running check tells what it is doing. The worker sends it to the parent; tests and libraries ignore it.

A suspicion is sent *before* the dangerous act, so that the cause survives when the process does not.
"""

from __future__ import annotations

from typing import Protocol

from cudagraph_doctor.findings import Finding


class Progress(Protocol):
    """Injected into a check; the check knows nothing of terminals or processes."""

    def say(self, text: str) -> None:
        """A line for the user (estimates, what was left out)."""

    def stage(self, text: str, total: int) -> None:
        """A part of the work begins: `total` units of it are expected."""

    def advance(self, text: str = "") -> None:
        """One unit is done; `text` says what comes next ("step 3, 5 rows, replay")."""

    def journal(self, finding: Finding) -> None:
        """Should the process die now, this is why."""

    def journal_clear(self) -> None:
        """The danger is over."""


class Silent:
    """Progress that goes nowhere."""

    def say(self, text: str) -> None:
        """Ignored."""

    def stage(self, text: str, total: int) -> None:
        """Ignored."""

    def advance(self, text: str = "") -> None:
        """Ignored."""

    def journal(self, finding: Finding) -> None:
        """Ignored."""

    def journal_clear(self) -> None:
        """Ignored."""
