"""Flags, findings and outcome of a history, from its data alone."""

from __future__ import annotations

from dataclasses import replace

from cudagraph_doctor.findings import Status, Step
from cudagraph_doctor.replays.judging import CODES, judged, outcome
from cudagraph_doctor.replays.model import History
from cudagraph_doctor.replays.plain import from_plain, to_plain
from cudagraph_doctor.replays.wording import findings


def test_what_was_accused_stays_where_trials_look_for_it(made_up: History) -> None:
    accused = replace(made_up.flags[0], evidence={"cause": "not refreshed"})
    again = judged(replace(made_up, flags=(*made_up.flags[1:], accused)))
    assert again.flags[0] == accused
    # what readings show besides is judged anew: a stale tail, a weight that is elsewhere, and a baked scale
    assert {flag.code for flag in again.flags[1:]} == {"CGD303", "CGD308", "CGD320"}
    assert [finding.code for finding in findings(again)] == ["CGD301"]
    assert judged(from_plain(History, to_plain(again))) == again


def test_findings_decide_the_status(made_up: History) -> None:
    found = outcome(made_up, findings(made_up))
    assert (found.status, found.rules, found.checked["steps"]) == (Status.FOUND, CODES, 3)
    assert "what is in 1 places of memory that nobody names" in found.not_checked
    assert outcome(made_up, ()).status is Status.PASSED


def test_steps_that_are_wrong_and_not_explained_are_inconclusive(made_up: History) -> None:
    steps = [Step(0, 4, "4", "finding"), Step(1, 4, "4", "inconclusive")]
    found = outcome(made_up, (), steps, runs=9)
    assert found.status is Status.INCONCLUSIVE and "does not explain it" in found.reason and found.fix
    assert found.coverage == 0.5 and found.checked["runs"] == 9
    assert "1 of 2 steps could not be judged" in found.not_checked


def test_nothing_judged_is_inconclusive(made_up: History) -> None:
    found = outcome(replace(made_up, replays=()), (), [Step(0, 4, "4", "inconclusive")])
    assert (found.status, found.reason) == (Status.INCONCLUSIVE, "no step could be judged")
