"""What a survey brings to an outcome: evidence for what is found anyway, a sentence on what is not."""

from __future__ import annotations

from cudagraph_doctor.findings import Culprit, Finding, Outcome, Proof, Severity, Status
from cudagraph_doctor.replays.plain import from_plain, to_plain
from cudagraph_doctor.replays.surveyed import LeftAlone, Surveyed, added

SURVEYED = Surveyed(
    16,
    ("slots", "lens"),
    (LeftAlone("lens", 3, 4, "4", 2, 8), LeftAlone("slots", 0, 1, "2", 2, 2)),
    {"rows": "no other value of it is known to be legal"},
)


def finding(name: str, **evidence: object) -> Finding:
    return Finding("CGD301", "", Severity.ERROR, Proof.CONFIRMED, "", culprit=Culprit("input", name), evidence=evidence)


def test_crosses_a_process() -> None:
    assert from_plain(Surveyed, to_plain(SURVEYED)) == SURVEYED


def test_no_finding_comes_of_it() -> None:
    outcome = added(Outcome("inputs", Status.PASSED, not_checked=("races",)), SURVEYED)
    assert (outcome.status, outcome.findings, outcome.checked) == (Status.PASSED, (), {"inputs poisoned": 2})
    assert outcome.not_checked == (
        "races",
        "whether `lens` may stay as it is: at step 3 (4 rows, graph 4) staging leaves 2 of its 8 values as they were, "
        "and the step follows them; they were right at all steps played",
        "whether `slots` may stay as it is: at step 0 (1 row, graph 2) staging leaves 2 of its 2 values as they were, "
        "and the step follows them; they were right at all steps played",
        "`rows` with poison: no other value of it is known to be legal",
    )


def test_what_is_found_anyway_gets_it_as_evidence() -> None:
    found = (finding("lens"), finding("metadata", names=["metadata.a", "slots"]), finding("table"))
    outcome = added(Outcome("inputs", Status.FOUND, findings=found), SURVEYED)
    assert [sorted(one.evidence.get("poison", ())) for one in outcome.findings] == [["lens"], ["slots"], []]
    assert [one.fingerprint for one in outcome.findings] == [one.fingerprint for one in found]
    assert not any("may stay" in sentence for sentence in outcome.not_checked)
