"""From a history to findings: what is spoken of, how it is proved, what it says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cudagraph_doctor.findings import Proof, Severity
from cudagraph_doctor.replays.model import Flag, History, Trial
from cudagraph_doctor.replays.wording import findings
from cudagraph_doctor.rules import RULES

CODES = [code for code, rule in RULES.items() if rule.check == "inputs"]


def test_only_what_was_healed_or_accused_is_spoken_of(made_up: History) -> None:
    (found,) = findings(made_up)
    assert (found.code, found.proof, found.step, found.key) == ("CGD301", Proof.CONFIRMED, 0, "4")
    assert found.message == (
        "`slots` is never refreshed: the replay reads what was there before. Step 0, 4 rows: differs from eager in 5 "
        "of 5 replays, eager from itself in 0 of 5: tokens: 3 of 4. Healed by writing 16 bytes of `slots` (4 of 4 "
        "rows)."
    )
    assert found.culprit is not None and (found.culprit.captured, found.culprit.expected) == (
        [9, 9, 9, 9],
        [0, 16, 32, 48],
    )
    assert "buffer[:n].copy_(slots)" in found.fix and found.evidence["effect"] == "tokens: 3 of 4"


@pytest.mark.parametrize(("changed_at", "never"), [(0, True), (2, True), (3, False)])
def test_what_is_filled_with_other_values_each_time_is_not_called_never_refreshed(
    made_up: History, changed_at: int, never: bool
) -> None:
    flag = replace(made_up.flags[0], name="buffers.4", evidence={"replays": 4, "changed_at": changed_at})
    (found,) = findings(replace(made_up, flags=(flag,)))
    assert ("is never refreshed" in found.message, "not with this step's values" in found.message) == (never, not never)
    assert "`buffers[4]`" in found.fix


@pytest.mark.parametrize("code", CODES)
def test_every_code_has_words(made_up: History, code: str) -> None:
    flag = replace(made_up.flags[0], code=code, kind="parameter" if code >= "CGD320" else "input")
    (found,) = findings(replace(made_up, flags=(flag,), trials=(Trial(0, (0,), True, 4),)))
    assert found.code == code and found.fix and "{" not in found.message + found.fix
    assert "slots" in found.message + found.culprit.name  # type: ignore[union-attr]


def test_what_was_accused_and_not_mended_is_measured(made_up: History) -> None:
    flag = Flag("CGD323", 0, name="aten.mul.Tensor", kind="node", where="node 28", evidence={"cause": "other launches"})
    (found,) = findings(replace(made_up, flags=(flag,), trials=()))
    assert found.proof is Proof.MEASURED and found.severity is Severity.ERROR
    assert "launches other work than graph 4: node 28" in found.message and "Healed" not in found.message


def test_other_launches_without_harm_are_a_note(made_up: History) -> None:
    flag = Flag("CGD322", None, name="key_amax", kind="launch", evidence={"harmless": True, "key": "16"})
    (found,) = findings(replace(made_up, flags=(flag,), trials=()))
    assert (found.severity, found.key, found.fix) == (Severity.NOTE, "16", "Nothing to do.")
    assert "does no harm" in found.message


def test_a_forced_fault_is_told_as_such(made_up: History) -> None:
    flag = replace(made_up.flags[0], evidence={"forced": True})
    (found,) = findings(replace(made_up, flags=(flag,), trials=(Trial(0, (0,), True, 16),)))
    assert "Its 16 bytes, put into a graph captured now, make that one as wrong" in found.message


def test_harm_through_the_state_is_told(made_up: History) -> None:
    replay = replace(made_up.replays[1], against_eager=replace(made_up.replays[1].against_eager, differs=0))
    flag = replace(made_up.flags[0], replay=1)
    history = replace(made_up, replays=(made_up.replays[0], replay), flags=(flag,), trials=(Trial(1, (0,), True, 4),))
    (found,) = findings(history)
    assert "leaves other state than eager, and the output at position 2 of the plan follows" in found.message
