"""From a diagnosed step to a finding, on made-up cases."""

from __future__ import annotations

import json
import weakref
from dataclasses import replace
from typing import Any

import pytest
import torch

from cudagraph_doctor.findings import Finding, Location, Outcome, Proof, Report, Severity, Status, to_json
from cudagraph_doctor.graph.backend import Edit, LiveGraph
from cudagraph_doctor.graph.model import GraphNode, NodeKind, Origin
from cudagraph_doctor.proof.cases import Case, one_fault_each
from cudagraph_doctor.proof.compare import Difference, Level, compare, without_values
from cudagraph_doctor.proof.diagnose import Diagnosis
from cudagraph_doctor.proof.nodes import Unlike
from cudagraph_doctor.proof.places import Places
from cudagraph_doctor.proof.repair import Cause, Remedy
from cudagraph_doctor.proof.replaced import By, Replaced
from cudagraph_doctor.proof.state_diff import Place, StateDifference
from cudagraph_doctor.proof.subject import Planned
from cudagraph_doctor.proof.verdict import Gap, Kind, StepRecord
from cudagraph_doctor.proof.wording import (
    explain,
    failing_replay,
    first_step_hint,
    replaced_finding,
    short,
)
from cudagraph_doctor.report.terminal import render
from cudagraph_doctor.report.view import View

AT = Planned(3, 3, 2, 4)
LIVE = LiveGraph(0, weakref.ref(set()))
LARGE = Gap((Difference("logits", Level.LARGE, max_abs=2.0, scale=4.0, count=3, total=9),))
STATE = Gap(
    (), StateDifference(Level.LARGE, extra=2, names={"k_cache": None}, places=[Place("k_cache", (0, 1), 1, "extra")])
)
STAGING = Location("/engine.py", 10, "Loop.update", role="staged")
CAPTURED = Location("/engine.py", 20, role="captured")
LAUNCHED = Origin(Location("/engine.py", 30), "layers.0.attn", "aten.mul.Scalar")


WRITTEN = (Cause.NOT_REFRESHED, Cause.PARTLY_REFRESHED, Cause.STALE_TAIL, Cause.PADDING, Cause.REBOUND)
"""What `diff` heals by writing."""


def written(cause: Cause, name: str = "static.slots", where: str = "rows 1", **more: Any) -> Remedy:
    """Bytes over a captured tensor."""
    held, right = torch.tensor([5, 7770077]), torch.tensor([5, 8880088])
    return Remedy(cause, name, "input", where, torch.zeros(2, dtype=torch.int64), right, held, **more)


def baked(name: str = "mul, parameter 1", was: object = 7770077, expected: object = 8880088) -> Remedy:
    """A parameter set in the graph."""
    return Remedy(Cause.BAKED, name, "parameter", edits=((LIVE, Edit(0, 1, bytes(4))),), was=was, expected=expected)


def case(kind: Kind = Kind.FROZEN, *culprits: Remedy, **facts: Any) -> Case:
    """A bad step with these culprits."""
    record = StepRecord(replayed=facts.pop("replayed", LARGE), fresh=Gap(), fresh_replayed=LARGE)
    diagnosis = Diagnosis(list(culprits), confirmed=bool(culprits), tried=3)
    made = Case(AT, kind, record, diagnosis, "", Places(STAGING, CAPTURED), (), (3, 5), True)
    return replace(made, **facts)


def one(some: Case) -> Finding:
    """The only finding about it; plain JSON."""
    (finding,) = explain(some, "emulated")
    json.dumps(to_json(finding))
    assert finding.fix and finding.step == 3 and finding.key == "4" and finding.backend == "emulated"
    return finding


UNLIKE = Diagnosis(unlike=Unlike(5, GraphNode(5, NodeKind.KERNEL, "add"), None))
LOUD = [
    *(case(Kind.FROZEN, written(cause)) for cause in WRITTEN),
    case(Kind.FROZEN, baked()),
    case(Kind.FROZEN, diagnosis=UNLIKE),
    case(Kind.FROZEN),
    case(Kind.DIFFERS),
    case(Kind.UNTOLD),
    case(Kind.UNSTABLE),
]
REPLACED = Replaced(("cache",), AT, Planned(4, 4, 2, 4), LARGE.outputs, True)


@pytest.mark.parametrize(
    "finding",
    [
        *(explain(some, "emulated")[0] for some in LOUD),
        failing_replay(AT, [], Places(STAGING), "emulated"),
        failing_replay(AT, ["static.slots"], Places(STAGING), "emulated"),
        *(replaced_finding(replace(REPLACED, by=by), STAGING, "emulated") for by in By),
    ],
    ids=lambda finding: finding.message[:40],
)
def test_the_headline_is_a_whole_clause_and_what_is_said_below_says_more(finding: Finding) -> None:
    outcome = Outcome("diff", Status.FOUND, findings=(finding,))
    text = render(Report({}, {}, {}, (outcome,)), View(width=2000))
    (headline,) = [line for line in text.splitlines() if line.startswith("Found 1 error: ")]
    clause = headline.removeprefix("Found 1 error: ").rstrip(". ")
    assert finding.message.startswith(clause) and len(finding.message) > len(clause) + 10
    assert clause.count("(") == clause.count(")") and clause.count("`") % 2 == 0 and "Healed" not in clause


def test_replaced_state_is_named_with_its_proof() -> None:
    finding = replaced_finding(REPLACED, STAGING, "emulated")
    json.dumps(to_json(finding))
    assert (finding.code, finding.proof, finding.step, finding.key) == ("CGD101", Proof.CONFIRMED, 3, "4")
    assert finding.culprit is not None and (finding.culprit.kind, finding.culprit.name) == ("state", "cache")
    assert "do not reach step 4, run eagerly (logits: 3 of 9" in finding.message and finding.location == STAGING
    assert "`cache`" in finding.evidence["healed_by"] and "cache.copy_(new)" in finding.fix
    unhealed = replaced_finding(replace(REPLACED, healed=False), None, "emulated")
    assert unhealed.proof is Proof.MEASURED and "healed_by" not in unhealed.evidence


@pytest.mark.parametrize(
    ("by", "kind", "words", "related"),
    [
        (
            By.STAGING,
            "buffer",
            "step 4, run eagerly, reads it, while the graph reads the old one (logits: 3",
            (STAGING,),
        ),
        (By.STEP, "state", "no replay of graph 4 puts one there: what it writes at step 3 does not reach step 4", ()),
    ],
)
def test_what_one_side_puts_in_place(by: By, kind: str, words: str, related: tuple[Location, ...]) -> None:
    line = Location("/model.py", 7, "forward", role="bound")
    finding = replaced_finding(replace(REPLACED, by=by, line=line), STAGING, "emulated")
    assert words in finding.message and finding.culprit is not None and finding.culprit.kind == kind
    assert (finding.location, finding.related) == (line, related)
    assert replaced_finding(replace(REPLACED, by=by), STAGING, "emulated").location == STAGING


# nothing heals


def test_replays_that_do_not_repeat() -> None:
    made = case(Kind.UNSTABLE)
    made.record.replay_control = LARGE
    finding = one(made)
    assert (finding.code, finding.proof, finding.severity) == ("CGD106", Proof.MEASURED, Severity.ERROR)
    assert "graph 4" in finding.message and "logits: 3 of 9 values differ" in finding.message
    assert finding.culprit is None


def test_something_is_frozen_and_nothing_heals() -> None:
    finding = one(case(Kind.FROZEN))
    assert (finding.code, finding.proof) == ("CGD101", Proof.MEASURED)
    assert "A graph captured now is right." in finding.message and finding.fix.startswith("No culprit could be named")
    assert finding.location == CAPTURED  # nothing accuses staging


@pytest.mark.parametrize(
    ("own", "said"), [(False, "nothing is frozen."), (True, "either staging is wrong, or a value")]
)
def test_a_graph_captured_now_is_as_wrong(own: bool, said: str) -> None:
    record = StepRecord(replayed=LARGE, fresh=LARGE, fresh_replayed=Gap())
    finding = one(replace(case(Kind.DIFFERS), record=record, own_captures=own))
    assert finding.code == "CGD102" and said in finding.message and finding.culprit is None


def test_other_work_than_a_capture_now_launches() -> None:
    nodes = [GraphNode(5, NodeKind.KERNEL, name) for name in ("add", "relu")]
    finding = one(
        case(Kind.FROZEN, diagnosis=Diagnosis(unlike=Unlike(5, *nodes)), places=Places(STAGING, CAPTURED, LAUNCHED))
    )
    assert finding.code == "CGD101" and "does: node 5: add then, relu now. logits: 3 of 9" in finding.message
    assert finding.culprit is not None
    assert (finding.culprit.kind, finding.culprit.name, finding.culprit.detail) == ("node", "node 5", "layers.0.attn")
    assert (finding.culprit.captured, finding.culprit.expected) == ("add", "relu")
    assert finding.location == LAUNCHED.location and finding.related == (CAPTURED,), "nothing accuses staging"


def test_a_node_that_is_there_only_once() -> None:
    unlike = Unlike(5, GraphNode(5, NodeKind.KERNEL, "add"), None)
    finding = one(case(Kind.FROZEN, diagnosis=Diagnosis(unlike=unlike)))
    assert finding.culprit is not None and finding.culprit.expected is None and finding.location == CAPTURED


@pytest.mark.parametrize(
    ("kind", "fresh_replayed", "end"),
    [
        (Kind.DIFFERS, Gap(), "differs as well, so nothing is frozen."),
        (Kind.DIFFERS, LARGE, "differs as well, otherwise."),
        (Kind.UNTOLD, None, "3 of 9 values differ, up to 2 of 4."),
    ],
)
def test_replays_that_differ_from_eager(kind: Kind, fresh_replayed: Gap | None, end: str) -> None:
    made = case(kind)
    made.record.fresh_replayed = fresh_replayed
    finding = one(made)
    assert finding.code == "CGD102" and finding.message.endswith(end) and finding.culprit is None


def test_state_alone_names_the_slot() -> None:
    made = case(Kind.DIFFERS, replayed=STATE, owners=("slot 1: row 0 of slots",) * 2)
    made.record.harm_step = 6
    finding = one(made)
    assert finding.culprit is not None
    assert (finding.culprit.kind, finding.culprit.name) == ("state", "k_cache")
    assert finding.culprit.detail == "k_cache[0, 1] (slot 1): extra"
    assert "first at k_cache[0, 1]" in finding.message and "position 6 of the plan" in finding.message
    assert finding.evidence["state"] == ["k_cache[0, 1] slot 1: extra"]
    assert finding.evidence["owners"] == ["slot 1: row 0 of slots"]


# something heals


@pytest.mark.parametrize(
    ("cause", "kind", "code", "words", "fix"),
    [
        (Cause.NOT_REFRESHED, Kind.FROZEN, "CGD101", "`static.slots` is not refreshed", "buffer[:n].copy_(slots)"),
        (Cause.NOT_REFRESHED, Kind.DIFFERS, "CGD102", "`static.slots` is not refreshed", "buffer[:n].copy_(slots)"),
        (Cause.PARTLY_REFRESHED, Kind.DIFFERS, "CGD102", "only in part (not rows 1)", "Copy all of `slots`"),
        (
            Cause.STALE_TAIL,
            Kind.FROZEN,
            "CGD103",
            "values of an earlier step in its rows 1",
            "Reset the rows of `slots`",
        ),
        (Cause.PADDING, Kind.DIFFERS, "CGD103", "addresses live state from its rows 1", "padding rows of `slots`"),
        (Cause.REBOUND, Kind.FROZEN, "CGD101", "another tensor by now", "`slots.copy_(new)`"),
    ],
)
def test_each_cause_has_its_rule_and_its_words(cause: Cause, kind: Kind, code: str, words: str, fix: str) -> None:
    finding = one(case(kind, written(cause)))
    assert (finding.code, finding.proof) == (code, Proof.CONFIRMED)
    assert words in finding.message and "Step 3, 2 rows:" in finding.message and fix in finding.fix
    assert finding.culprit is not None and finding.culprit.name == "static.slots"
    assert finding.culprit.captured == [5, 7770077] and finding.culprit.detail == "rows 1"
    assert finding.culprit.expected == (None if cause is Cause.PADDING else [5, 8880088])
    assert (finding.location, finding.related) == (STAGING, (CAPTURED,))
    assert finding.evidence["cause"] == cause.value and finding.evidence["remedies_tried"] == 3


def test_what_healed_is_told_in_bytes() -> None:
    assert (
        "healed by writing 16 bytes of `static.slots` (rows 1)"
        in one(case(Kind.FROZEN, written(Cause.REBOUND))).message
    )
    assert "healed by setting 4 bytes of `mul, parameter 1`" in one(case(Kind.FROZEN, baked())).message
    assert "state is left alone" in one(case(Kind.DIFFERS, written(Cause.PADDING))).message


def test_what_was_forced_on_a_good_graph_is_told_so() -> None:
    diagnosis = Diagnosis([written(Cause.NOT_REFRESHED)], confirmed=True, forced=True)
    assert "make that one as wrong, bit for bit" in one(case(Kind.FROZEN, diagnosis=diagnosis)).message


def test_an_address_alone_is_measured_not_confirmed() -> None:
    suspect = Remedy(Cause.REBOUND, "head.weight", "weight")
    finding = one(case(Kind.FROZEN, diagnosis=Diagnosis([suspect])))
    assert (
        finding.proof is Proof.MEASURED
        and "have another address" in finding.message
        and "healed" not in finding.message
    )
    chosen = one(case(Kind.FROZEN, diagnosis=Diagnosis([replace(suspect, was="head.old", expected="head.weight")])))
    assert chosen.message.startswith("graph 4 has `head.old` where one captured now has `head.weight`: ")
    assert "copy `head.weight` into `head.old`" in chosen.fix, "no name moved: none is said to"
    patched = replace(suspect, edits=((LIVE, Edit(0, 0, bytes(8))),))
    finding = one(case(Kind.FROZEN, patched))
    assert "healed by putting the address of `head.weight` into the graph" in finding.message


def test_a_baked_number_is_told_with_both_values_and_its_launch() -> None:
    finding = one(case(Kind.FROZEN, baked(), places=Places(STAGING, CAPTURED, LAUNCHED)))
    assert "was baked into graph 4 by value (7770077 in the graph, 8880088 in one captured now)" in finding.message
    assert finding.culprit is not None and (finding.culprit.captured, finding.culprit.expected) == (7770077, 8880088)
    assert finding.culprit.detail == "launched by aten.mul.Scalar in layers.0.attn"
    assert finding.location == LAUNCHED.location


def test_a_launch_outside_the_dispatcher() -> None:
    finding = one(case(Kind.FROZEN, baked(), places=Places(None, None, Origin(Location("/engine.py", 30)))))
    assert finding.culprit is not None and finding.culprit.detail == "launched by no operator"
    assert finding.related == ()


def test_two_faults_are_two_findings() -> None:
    findings = explain(case(Kind.FROZEN, written(Cause.NOT_REFRESHED), baked()), "cuda")
    assert [finding.culprit.name for finding in findings if finding.culprit] == ["static.slots", "mul, parameter 1"]


def test_the_tensors_of_one_object_are_one_finding() -> None:
    parts = [written(Cause.REBOUND, f"metadata.{name}") for name in ("slots", "lens")]
    finding = one(case(Kind.FROZEN, *parts))
    assert "writing 32 bytes of `metadata.slots`, `metadata.lens`." in finding.message
    assert "`metadata` is another object by now" in finding.message
    assert finding.culprit is not None and finding.culprit.name == "metadata"
    assert finding.culprit.captured == {"metadata.slots": [5, 7770077], "metadata.lens": [5, 7770077]}
    assert finding.culprit.expected == {"metadata.slots": [5, 8880088], "metadata.lens": [5, 8880088]}
    nowhere = [replace(part, where="") for part in parts]
    detail = one(case(Kind.FROZEN, *nowhere)).culprit.detail  # type: ignore[union-attr]
    assert detail == "`metadata.slots`, `metadata.lens`"


# faults


def test_one_number_in_several_kernels_is_one_fault() -> None:
    faults = one_fault_each([baked("a"), baked("b"), baked("c", was=1)])
    assert [[remedy.name for remedy in some] for some in faults.values()] == [["a", "b"], ["c"]]


def test_buffers_are_faults_of_their_own() -> None:
    faults = one_fault_each([written(Cause.NOT_REFRESHED, "a.x"), written(Cause.NOT_REFRESHED, "a.y")])
    assert list(faults) == [("not refreshed", "a.x"), ("not refreshed", "a.y")]
    weights = [replace(written(Cause.REBOUND, f"layer.{name}"), kind="weight") for name in "qk"]
    assert len(one_fault_each(weights)) == 2


def test_how_much_was_refreshed_does_not_make_it_another_fault() -> None:
    whole, part = (one_fault_each([written(cause)]) for cause in (Cause.NOT_REFRESHED, Cause.PARTLY_REFRESHED))
    assert whole.keys() == part.keys() != one_fault_each([written(Cause.STALE_TAIL)]).keys()
    assert one_fault_each([]) == {}


# values


@pytest.mark.parametrize(
    "culprits",
    [
        [written(Cause.NOT_REFRESHED)],
        [written(Cause.PADDING)],
        [written(Cause.REBOUND, "meta.a"), written(Cause.REBOUND, "meta.b")],
        [baked()],
        [],
    ],
)
def test_no_value_is_shown_where_none_may_be(culprits: list[Remedy]) -> None:
    differences = compare({"token": 7770077, "logits": torch.zeros(2)}, {"token": 8880088, "logits": torch.ones(2)})
    shown = case(Kind.FROZEN, *culprits, replayed=Gap(tuple(differences)))
    assert "7770077" in json.dumps(to_json(explain(shown, "cuda")))
    hidden = case(Kind.FROZEN, *culprits, replayed=Gap(tuple(without_values(differences))), values=False)
    text = json.dumps(to_json(explain(hidden, "cuda")))
    assert "7770077" not in text and "8880088" not in text and "token: another value" in text


def test_values_are_shortened() -> None:
    assert short(None) is None
    assert short(torch.tensor(3)) == [3]
    assert short(torch.arange(3)) == [0, 1, 2]
    assert short(torch.arange(30)) == [*range(24), "..."]
    assert short(torch.zeros(2, 2)) == [[0, 0], [0, 0]] and short(torch.zeros(48, 2)) == [[0, 0]] * 48
    assert short(torch.zeros(99, 2)) == [*[0] * 24, "..."]


# evidence


def test_the_measurements_are_all_there() -> None:
    made = case(Kind.FROZEN, module="layers.0")
    made.record.padded = Gap()
    made.diagnosis.not_read = {"no layout": 2}
    evidence = one(made).evidence
    assert evidence["replayed_against_eager"] == evidence["replayed_against_fresh"] == str(LARGE)
    assert evidence["eager_against_eager"] == evidence["fresh_against_eager"] == "bit for bit equal"
    assert evidence["fresh_against_eager_on_static_inputs"] == "bit for bit equal"
    assert evidence["seen_at_steps"] == [3, 5] and evidence["first_diverging_module"] == "layers.0"
    assert evidence["nodes_not_read"] == {"no layout": 2}


def test_what_was_not_measured_is_not_there() -> None:
    made = case(Kind.UNTOLD)
    made.record.fresh = None
    assert (
        not {"fresh_against_eager", "first_diverging_module", "state", "owners", "nodes_not_read"}
        & one(made).evidence.keys()
    )


def test_the_first_bad_step_hints_at_the_cause() -> None:
    assert first_step_hint([0, 1]).startswith("bad from the first step")
    assert first_step_hint([4]).startswith("right until step 4")


# findings without a diagnosis


def test_a_replay_that_fails_is_told_before_it_is_tried() -> None:
    plain = failing_replay(AT, [], Places(STAGING), "cuda")
    assert (plain.code, plain.severity, plain.culprit) == ("CGD003", Severity.ERROR, None)
    assert plain.location == STAGING and plain.related == () and plain.fix.startswith("Look at what the graph reads")
    moved = failing_replay(AT, ["runner.positions", *"abcdefgh"], Places(STAGING, CAPTURED), "cuda")
    assert moved.culprit is not None and moved.culprit.name == "runner.positions" and moved.related == (CAPTURED,)
    assert "`positions.copy_(new)`" in moved.fix and "`e`" not in moved.message and len(moved.evidence["moved"]) == 9


def test_values_have_as_many_digits_as_their_dtype() -> None:
    assert short(torch.tensor([3.4, 1.0])) == [3.4, 1.0]
    assert short(torch.tensor([[0.1, 7.0]], dtype=torch.bfloat16)) == [[0.1, 7.0]]
    assert short(torch.tensor([1 << 60])) == [1 << 60]


def test_where_another_tensor_was_put_in_place_is_the_line_to_mend() -> None:
    line = Location("/model.py", 7, "forward", role="bound")
    found = one(case(Kind.FROZEN, written(Cause.REBOUND, "cache", "", notes={"line": line})))
    assert found.location == line and STAGING not in found.related


def test_of_long_tensors_what_differs_is_shown() -> None:
    held, right = torch.zeros(99), torch.zeros(99)
    right[50:52] = 7
    remedy = Remedy(Cause.REBOUND, "cache", "root", buffer=torch.zeros(99), right=right, held=held)
    culprit = one(case(Kind.FROZEN, remedy)).culprit
    assert culprit is not None and (culprit.captured, culprit.expected) == ([0, 0], [7, 7])
