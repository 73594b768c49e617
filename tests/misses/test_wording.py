"""Findings: one for each reason and bucket, with a fingerprint that does not move; and the step table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudagraph_doctor.findings import Proof, Severity
from cudagraph_doctor.misses import wording
from cudagraph_doctor.misses.gates import Gate
from cudagraph_doctor.misses.reasons import Reason
from cudagraph_doctor.rules import RULES

if TYPE_CHECKING:
    from tests.misses.conftest import MakeRun, MakeStep


def test_every_reason_has_a_rule_and_a_fix() -> None:
    assert set(wording.CODES) == set(wording._FIX) == set(Reason)
    assert {code for code, rule in RULES.items() if rule.check == "buckets"} == set(wording.RULES)


def test_one_warning_for_each_reason_and_bucket(step: MakeStep, run: MakeRun) -> None:
    steps = [step(4, 4), step(3), step(8, 8), step(5), step(6), step(9), step(2), step(4, 4)]
    found = wording.findings(run(steps, (1, 2, 4, 8)), [])
    assert [(f.code, f.key, f.evidence["count"]) for f in found] == [
        ("CGD403", "4", 1),
        ("CGD403", "8", 2),
        ("CGD401", "8", 1),
        ("CGD407", "2", 1),
    ]
    assert all(f.severity is Severity.WARNING and f.proof is Proof.MEASURED for f in found)
    assert found[1].message.startswith("2 of 8 decode steps: padding off (batch 5 and 6): ")
    assert (found[1].step, found[1].evidence["steps"], found[1].evidence["sizes"]) == (3, [3, 4], [5, 6])


def test_fingerprints_do_not_depend_on_numbers(step: MakeStep, run: MakeRun) -> None:
    once = wording.findings(run([step(8, 8), step(9)], (8,)), [])
    again = wording.findings(run([step(8, 8), step(8, 8), step(12), step(10)], (8,)), [])
    assert [f.fingerprint for f in once] == [f.fingerprint for f in again]


def test_buckets_that_were_read_off_make_a_suspicion(step: MakeStep, run: MakeRun) -> None:
    [finding] = wording.findings(run([step(7, 8), step(9)]), [])
    assert finding.proof is Proof.SUSPECTED and "--buckets" in finding.message


def test_gates(step: MakeStep, run: MakeRun) -> None:
    gates = [Gate("--min-hit-rate", False, "low"), Gate("--expect", True, "ok"), Gate("--max-padding", None, "?")]
    [finding] = wording.findings(run([step(3, 4)]), gates)
    assert (finding.code, finding.severity, finding.message) == (
        "CGD400",
        Severity.ERROR,
        "--min-hit-rate is not met: low.",
    )


def test_side_threads_only_where_they_matter(step: MakeStep, run: MakeRun) -> None:
    def codes(**side: int) -> list[str]:
        return [f.code for f in wording.findings(run([step(3, 4, **side)]), [])]

    assert codes(side_loose_launches=5) == []
    assert codes(side_loose_launches=17) == ["CGD414"]
    assert codes(side_graph_launches=1) == ["CGD414"]


def test_step_table(step: MakeStep, run: MakeRun) -> None:
    replayed, eager = wording.steps(run([step(3, 4), step(9)], (1, 4)))
    assert (replayed.index, replayed.rows, replayed.key, replayed.verdict) == (0, 3, "4", "FULL")
    assert replayed.detail["padding_rows"] == 1 and replayed.detail["padding_share"] == 0.25
    assert replayed.detail["submit_ms"] == 0.01 and replayed.detail["hit"] is True
    assert (eager.key, eager.verdict) == ("", "EAGER")
    assert eager.detail["reason"] == "above the largest bucket" and "bucket" not in eager.detail
    assert "lane" not in eager.detail
    both = wording.steps(run([step(3, 4), step(3, 4, lane=1)]))
    assert [s.detail["lane"] for s in both] == ["rank 0", "rank 1"]
