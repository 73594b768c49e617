"""Severity, proof and words of findings; what each rule needs is planted in `test_planted.py`."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from cudagraph_doctor.audit import wording
from cudagraph_doctor.audit.costs import CostTable, KeyCost, Modelled
from cudagraph_doctor.audit.job import Demands
from cudagraph_doctor.audit.judged import Audit, judge
from cudagraph_doctor.audit.keys import Configuration, KeySet
from cudagraph_doctor.audit.simulate import Arrivals, compare
from cudagraph_doctor.audit.workload import assumed
from cudagraph_doctor.findings import Finding, Proof, Severity

if TYPE_CHECKING:
    from tests.audit.conftest import MakeAudit

KEYS = KeySet("decode", (1, 2, 4), 6)


def only(audit: Audit, code: str) -> Finding:
    [found] = [finding for finding in wording.findings(audit, []) if finding.code == code]
    return found


def test_a_hole_is_an_error_with_its_consequence(audit: MakeAudit) -> None:
    found = only(audit(KEYS), "CGD501")
    assert (found.severity, found.proof, found.key) == (Severity.ERROR, Proof.MEASURED, "4")
    assert found.message == "No key serves 5 and 6 requests of up to 6 (decode keys: 1, 2, 4): they run eager."
    assert found.fix == "Capture a key of 6 requests, or admit no more than 4 requests."
    assert found.evidence["eager_ms"] == 4.0 and "share_of_steps" not in found.evidence


def test_its_share_of_the_traffic(audit: MakeAudit) -> None:
    found = only(audit(KEYS, steps={2: 3.0, 5: 1.0}), "CGD501")
    assert found.severity is Severity.ERROR
    assert found.message.endswith("they run eager, 25.0% of the workload's steps.")


def test_a_hole_that_the_traffic_never_reaches_is_a_warning(audit: MakeAudit) -> None:
    assert only(audit(KEYS, steps={2: 3.0}), "CGD501").severity is Severity.WARNING


def test_a_hole_that_raises_is_an_error_all_the_same(audit: MakeAudit) -> None:
    found = only(audit(dataclasses.replace(KEYS, fails_up_to=6), steps={2: 3.0}), "CGD501")
    assert found.severity is Severity.ERROR and "make the runner raise" in found.message


def test_a_hole_of_an_assumed_rule_is_suspected_if_other_versions_lack_it() -> None:
    old = Configuration("f", "vllm", (KEYS,), "old", True)
    new = Configuration("f", "vllm", (KeySet("decode", (1, 2, 6), 6),), "new", True)
    found = only(judge([(old, [new])], assumed(6), Modelled(), Demands()), "CGD501")
    assert found.proof is Proof.SUSPECTED
    assert "Other versions of vllm do not have it; old was assumed: name yours with --rule." in found.message


def test_numbers_do_not_change_the_fingerprint(audit: MakeAudit) -> None:
    other = only(audit(dataclasses.replace(KEYS, most=9), steps={9: 1.0}), "CGD501")
    assert other.fingerprint == only(audit(KEYS), "CGD501").fingerprint


def test_unused_keys_with_their_memory(audit: MakeAudit) -> None:
    costs = CostTable((KeyCost(1, 1.0, graph_bytes=1 << 20), KeyCost(16, 2.0, graph_bytes=1 << 20)))
    found = only(audit(KeySet("decode", (1, 4, 16), 4), costs=costs), "CGD507")
    assert "under 16 (decode keys): 1 MiB of graphs for nothing." in found.message


def test_keys_that_the_workload_does_not_use_are_a_note(audit: MakeAudit) -> None:
    assert only(audit(KeySet("decode", (1, 4), 4), steps={1: 1.0}), "CGD507").severity is Severity.NOTE


def test_a_better_list_is_a_note_and_a_suspicion_unless_measured(audit: MakeAudit) -> None:
    keys, steps = KeySet("decode", (1, 8), 8), {2: 9.0, 8: 1.0}
    found = only(audit(keys, steps=steps, costs=Modelled(0.0, 1.0)), "CGD510")
    assert (found.severity, found.proof) == (Severity.NOTE, Proof.SUSPECTED)
    assert found.evidence["keys"] == [2, 8] and "67.5% less time" in found.message
    table = CostTable((KeyCost(1, 1.0), KeyCost(8, 8.0)))
    assert only(audit(keys, steps=steps, costs=table), "CGD510").proof is Proof.MEASURED


def test_without_a_workload_no_list_is_better(audit: MakeAudit) -> None:
    assert [f.code for f in wording.findings(audit(KeySet("decode", (1, 8), 8), costs=Modelled(0, 1)), [])] == []


def test_a_load_that_never_recovers_is_suspected_with_modelled_times() -> None:
    keys = KeySet("decode", (1, 2, 4, 8, 16, 32, 64), 4096)
    configuration = Configuration("f", "plain", (keys,))
    compared = compare(Arrivals(60, 200, burst=400), keys, Modelled(1.0, 0.02, 12.0))
    made = judge([(configuration, ())], assumed(64), Modelled(), Demands(), comparison=compared)
    found = only(made, "CGD509")
    assert found.proof is Proof.SUSPECTED and "The load never recovers" in found.message


def test_an_unmet_gate(audit: MakeAudit) -> None:
    from cudagraph_doctor.audit import gates

    made = audit(KEYS, steps={6: 1.0}, min_hit_rate=0.5)
    [found] = [f for f in wording.findings(made, gates.check(made)) if f.code == "CGD500"]
    assert found.message == "--min-hit-rate is not met: the hit rate is 0.0%, demanded are 50.0%."
