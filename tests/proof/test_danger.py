"""What is to be said if a replay is the end stands in the journal while it runs, and at no other time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from cudagraph_doctor.findings import Finding, Proof, Severity
from cudagraph_doctor.proof.arms import Arm, Arms
from cudagraph_doctor.proof.danger import Danger
from cudagraph_doctor.proof.subject import Planned

Make = Callable[..., Any]
WORSE = Finding("CGD102", "worse", Severity.ERROR, Proof.MEASURED, "mend it")


@dataclass
class Journal:
    """A `Progress` that remembers what is in its journal."""

    now: Finding | None = None
    all: list[Finding] = field(default_factory=list)

    def journal(self, finding: Finding) -> None:
        """Kept."""
        self.now = finding
        self.all.append(finding)

    def journal_clear(self) -> None:
        """Taken back."""
        self.now = None


@pytest.fixture
def watched(loop_target: Make, arms_of: Make) -> tuple[Arms, list[Planned], Danger, Any]:
    """A sound target; the replays of its arms are not yet watched."""
    arms, plan = arms_of(loop_target(), 2, 1)
    arms.save()
    journal: Any = Journal()
    return arms, plan, Danger(arms, arms.subject.target, journal), journal


def test_a_danger_is_told_and_taken_back(watched: tuple[Arms, list[Planned], Danger, Any]) -> None:
    arms, (at, _), danger, journal = watched
    danger.watch(at)
    assert journal.now.code == "CGD003" and journal.now.step == at.step
    assert danger.finding is None, "nothing was launched yet"
    arms.run(Arm.REPLAYED, at)
    assert danger.finding is journal.now
    danger.watch(None)
    assert journal.now is None and danger.finding is None


def test_what_was_found_at_a_step_is_said_for_its_further_replays(
    watched: tuple[Arms, list[Planned], Danger, Any],
) -> None:
    _, (first, second), danger, journal = watched
    danger.suspect(first, WORSE)
    for at in (first, first, second):
        danger.watch(at)
    assert [finding.code for finding in journal.all] == ["CGD102", "CGD102", "CGD003"]
