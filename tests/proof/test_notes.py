"""What is said of the target and the run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from cudagraph_doctor.findings import Severity
from cudagraph_doctor.proof.compare import Difference, Level
from cudagraph_doctor.proof.notes import (
    MADE_UP_PADDING,
    kept_only_by_steps,
    moved_by_staging,
    numerics_note,
    reset_finding,
    reset_not_in_place,
    unknown_note,
)
from cudagraph_doctor.proof.state_diff import StateDifference
from cudagraph_doctor.proof.subject import Planned
from cudagraph_doctor.proof.verdict import Gap, Kind, StepRecord

AT = Planned(3, 3, 2, 4)
LARGE = Gap((Difference("logits", Level.LARGE, max_abs=2.0, scale=4.0, count=3, total=9),))
STATE = Gap((), StateDifference(Level.LARGE, extra=2, names={"k_cache": None}))


def test_who_has_no_update_is_told_its_signature() -> None:
    assert "write `def update(self, static, fresh) -> None` in the target" in MADE_UP_PADDING


@pytest.mark.parametrize(("control", "seen"), [(Gap(), "logits: 3 of 9"), (STATE, "state k_cache")])
def test_a_reset_that_is_not_in_place_is_told_with_its_effect(control: Gap, seen: str) -> None:
    error = reset_not_in_place(["model.cache"], AT, StepRecord(replayed=LARGE, eager_control=control))
    assert "`model.cache` is another tensor" in error.what and "model.cache.copy_(start)" in error.fix
    assert error.seen.startswith(f"step 3 with 2 rows then differs: {seen}")


def test_rounding_and_harmless_state_are_notes() -> None:
    for kind, words in ((Kind.NUMERICS, "differ by rounding only"), (Kind.HARMLESS, "without effect on any output")):
        note = numerics_note(AT, kind, StepRecord(replayed=LARGE), "cuda")
        assert (note.code, note.severity) == ("CGD107", Severity.NOTE) and words in note.message
        assert ("reserved()" in note.fix) == (kind is Kind.HARMLESS)
        assert note.evidence["relative"] == 0.5


def test_eager_that_does_not_repeat_is_a_note() -> None:
    note = unknown_note(AT, StepRecord(eager_control=LARGE), "cuda")
    assert (note.code, note.severity, note.step) == ("CGD001", Severity.NOTE, 3)
    assert note.message.startswith("Eager differs from eager at step 3 with 2 rows: logits")
    once = unknown_note(AT, StepRecord(replayed=LARGE), "cuda")
    assert once.message.startswith("What differed at step 3 with 2 rows did not at each repetition: logits")


@pytest.mark.parametrize("said", [kept_only_by_steps, moved_by_staging])
def test_what_is_put_in_anothers_place_names_five(said: Callable[[Sequence[str]], str]) -> None:
    assert "`a`, `b`, `c`, `d`, `e` and 2 more" in said([*"abcdefg"])
    assert "`a`, `b`:" in said([*"ab"])


def test_an_incomplete_reset_names_five() -> None:
    finding = reset_finding([*"abcdefg"], "cuda")
    assert (finding.code, finding.severity) == ("CGD002", Severity.NOTE)
    assert finding.message == "reset() does not bring back `a`, `b`, `c`, `d`, `e` and 2 more."
    assert finding.culprit is not None and finding.culprit.name == "a"
    assert reset_finding([*"abcde"], "cuda").message.endswith("`d`, `e`.")
