"""Findings from made-up measurements: what is spoken of, and what is not."""

from __future__ import annotations

import pytest

from cudagraph_doctor.findings import Culprit, Finding, Proof, Severity
from cudagraph_doctor.measuring import wording
from cudagraph_doctor.measuring.model import Dependence, Measured, Measurement, Switching, Timing


def with_times(replay: Timing, eager: Timing) -> Measurement:
    return Measurement("loop", (Measured(8, 8, 5, replay=replay, eager=eager),), 8)


def test_a_graph_slower_than_eager() -> None:
    [found] = wording.findings(with_times(Timing(3.0, 2.9, 3.1, 11), Timing(1.0, 0.9, 1.1, 11)), "cuda")
    assert (found.code, found.severity, found.proof, found.key) == ("CGD515", Severity.WARNING, Proof.MEASURED, "8")
    assert "3 ms against 1 ms (medians of 11 runs in turn, 8 rows)" in found.message


@pytest.mark.parametrize(
    ("replay", "eager"),
    [
        (Timing(1.0, 0.9, 1.1, 11), Timing(3.0, 2.9, 3.1, 11)),
        (Timing(1.4, 1.35, 1.45, 11), Timing(1.0, 0.99, 1.01, 11)),
        (Timing(2.0, 0.9, 3.0, 11), Timing(1.0, 0.8, 1.2, 11)),
    ],
    ids=["faster", "as on a GPU that others use as well", "quartiles overlap"],
)
def test_no_graph_is_called_slower_by_chance(replay: Timing, eager: Timing) -> None:
    assert wording.findings(with_times(replay, eager), "cuda") == []


def test_keys_that_depend_on_the_last_one_are_one_finding() -> None:
    some = tuple(Dependence(key, key, 16, 9, "logits: 3 of 4 values differ", 3) for key in (8, 4, 2))
    [found] = wording.findings(Measurement("loop", (), 16, switching=Switching(3, 20, some)), "emulated")
    assert (found.code, found.severity) == ("CGD514", Severity.ERROR)
    assert "once key 16 (9 rows) ran before it (3 of 3 times" in found.message
    assert found.message.endswith("So do keys 2, 4.")
    assert [one["key"] for one in found.evidence["dependences"]] == [8, 4, 2]


def test_what_diff_found_is_told_as_a_keys() -> None:
    told = Finding("CGD101", "It is frozen.", Severity.ERROR, Proof.CONFIRMED, "Copy it.", Culprit("input", "slots"))
    found = wording.wrong(told, 8, [5, 8, 7], "here.py")
    assert (found.code, found.key, found.proof, found.culprit) == ("CGD513", "8", Proof.CONFIRMED, told.culprit)
    assert found.message == "The graph of key 8 is wrong for batches of 5, 7 and 8 (CGD101). It is frozen."
    assert found.evidence == {"rule": "CGD101", "batches": [5, 7, 8]}
    assert "cudagraph-doctor diff here.py" in found.fix
