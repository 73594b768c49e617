"""Findings of made-up observations: no torch, no target."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cudagraph_doctor.findings import Location, Proof, Severity
from cudagraph_doctor.graph.illegal import Kind
from cudagraph_doctor.observation.judging import RULES as EMITTED
from cudagraph_doctor.observation.judging import judge, spoken
from cudagraph_doctor.observation.model import (
    Attempt,
    EmptyGraph,
    FirstUse,
    HostValue,
    Observation,
    Operation,
    Refusal,
    StrayCasts,
    ToldBy,
)
from cudagraph_doctor.rules import RULES

PLACE = Location("/serve.py", 12, "step", "if x.sum().item():")
CALLER = Location("/serve.py", 40, "forward", "self.step(x)")
ITEM = Operation("Tensor.item", Kind.HOST_READ, PLACE, (CALLER,), module="model.sampler", times=3)
REFUSED = Refusal(ITEM, ToldBy.CALL, "CUDA error: not permitted", 900, plain="AcceleratorError: previous error")
NOTHING = Observation("loop", 3)


def test_nothing_seen_is_nothing_found() -> None:
    assert judge(NOTHING, "cuda") == []


def test_a_refusal_is_told_with_everything_that_is_known() -> None:
    [finding] = judge(replace(NOTHING, refusals=(REFUSED,)), "cuda")
    assert (finding.code, finding.proof, finding.severity) == ("CGD201", Proof.CONFIRMED, Severity.ERROR)
    assert finding.message == (
        "Tensor.item reads values from the device on the host, in module model.sampler, 3 times in all captures: "
        "CUDA error 900 (cudaErrorStreamCaptureUnsupported)."
    )
    assert finding.location == PLACE and [place.role for place in finding.related] == ["called from"]
    assert finding.culprit and finding.culprit.name == "Tensor.item" and finding.backend == "cuda"
    assert finding.evidence == {
        "class": "host read",
        "operation": "Tensor.item",
        "module": "model.sampler",
        "told_by": "the call that raised",
        "first_error": "CUDA error: not permitted",
        "plain_torch_shows": "AcceleratorError: previous error",
        "cuda_error": 900,
    }


def test_the_call_of_cuda_and_the_words_of_torch() -> None:
    by_cupti = replace(REFUSED, told_by=ToldBy.CUPTI, api="cudaStreamSynchronize")
    by_torch = replace(REFUSED, code=None, message="Cannot copy")
    first, second = judge(replace(NOTHING, refusals=(by_cupti, by_torch)), "cuda")
    assert "cudaStreamSynchronize returns CUDA error 900" in first.message
    assert first.evidence["cuda_call"] == "cudaStreamSynchronize"
    assert 'refused with "Cannot copy"' in second.message


@pytest.mark.parametrize("kind", Kind)
def test_every_class_has_a_rule(kind: Kind) -> None:
    [finding] = judge(replace(NOTHING, refusals=(replace(REFUSED, operation=replace(ITEM, kind=kind)),)), "cuda")
    assert RULES[finding.code].check == "capture" and finding.fix


def test_a_capture_that_passes_without_other_threads() -> None:
    polled = Operation("Event.query", Kind.OTHER_THREAD, PLACE, thread="poller", detail="query")
    [finding] = judge(
        replace(NOTHING, refusals=(Refusal(polled, ToldBy.CALL, "m", 901, without_threads=True),)), "cuda"
    )
    assert finding.code == "CGD211" and "in thread poller (query)" in finding.message
    assert 'In mode "thread_local" the same capture goes through.' in finding.message
    nobody = Refusal(
        Operation("", Kind.OTHER_THREAD, None, thread="a, b"), ToldBy.NOBODY, "m", 901, without_threads=True
    )
    [finding] = judge(replace(NOTHING, refusals=(nobody,)), "cuda")
    assert finding.code == "CGD211" and "in thread a, b" in finding.message and finding.location is None


def test_a_refusal_without_a_culprit() -> None:
    [finding] = judge(replace(NOTHING, refusals=(Refusal(None, ToldBy.NOBODY, "m", 901),)), "cuda")
    assert finding.code == "CGD219" and finding.message.startswith("An operation is refused")


def test_a_first_use_is_told_with_its_attempts() -> None:
    attempts = (Attempt(False, refusal=REFUSED), Attempt(False, nodes=(7, None, 3)), Attempt(False, nodes=(7, 3)))
    [finding] = judge(replace(NOTHING, first_uses=(FirstUse(REFUSED, attempts),)), "cuda")
    assert finding.code == "CGD213" and "After 1 to 2 eager runs" in finding.message and "warm-up" in finding.fix
    assert finding.evidence["after_eager_runs"] == [
        "CUDA error: not permitted",
        "passes, 10 nodes in 2 graphs",
        "passes, 10 nodes in 2 graphs",
    ]
    [finding] = judge(replace(NOTHING, first_uses=(FirstUse(REFUSED, attempts[:2]),)), "cuda")
    assert "After one eager run" in finding.message


def test_captures_that_succeed_and_are_wrong() -> None:
    seen = replace(
        NOTHING,
        outside=(Operation("aten.add_.Tensor", Kind.OUTSIDE_CAPTURE, PLACE),),
        host_sources=(Operation("aten.copy_.default", Kind.HOST_SOURCE, PLACE),),
        empty=(EmptyGraph(PLACE, 5), EmptyGraph(None, 0)),
        host_values=(HostValue("engine.position", "3 -> 4", PLACE, CALLER),),
    )
    outside, source, empty, nothing, value = judge(seen, "emulated")
    assert [finding.code for finding in (outside, source, empty, nothing, value)] == [
        *("CGD214", "CGD216", "CGD215", "CGD215", "CGD217"),
    ]
    assert outside.proof is Proof.MEASURED and "without a word" in source.message
    assert "5 operators" in empty.message and empty.severity is Severity.ERROR and empty.location == PLACE
    assert "launched nothing" in nothing.message and nothing.severity is Severity.WARNING
    assert "3 -> 4" in value.message and value.related[0].role == "read outside of the graph"
    assert "3 -> 4" not in judge(replace(NOTHING, host_values=seen.host_values), "emulated", values=False)[0].message
    unknown = replace(seen.host_values[0], written=None)
    [value] = judge(replace(NOTHING, host_values=(unknown,)), "emulated")
    assert value.location and value.location.line == CALLER.line


CASTS = StrayCasts(PLACE, CALLER, CALLER, ("head",), weights=2, captures=3, made_in_capture=False, gone=True)


@pytest.mark.parametrize(
    ("casts", "message", "proof"),
    [
        (
            CASTS,
            "3 graphs read the lower-precision copies of 2 weights that autocast made before",
            "measured",
        ),
        (
            replace(CASTS, weights=1, captures=1),
            "A graph reads the lower-precision copies of 1 weight ",
            "measured",
        ),
        (
            replace(CASTS, made_in_capture=True),
            "made in an earlier capture, and kept. Autocast is",
            "measured",
        ),
        (replace(CASTS, made_in_capture=True, gone=False), "and kept. Only replays of the graph", "suspected"),
        (replace(CASTS, made_in_capture=True, gone=False, captures=0), "Eager code reads the lower-", "measured"),
    ],
)
def test_casts_that_are_read_elsewhere(casts: StrayCasts, message: str, proof: str) -> None:
    [finding] = judge(replace(NOTHING, casts=(casts,)), "cuda")
    assert (finding.code, finding.severity, finding.proof) == ("CGD221", Severity.ERROR, Proof(proof))
    assert message in finding.message and finding.location == PLACE
    assert [place.role for place in finding.related] == ["capture opened", "cast first"]
    assert finding.culprit and finding.culprit.detail == "casts of head"


def test_casts_from_before_that_stay_are_no_finding() -> None:
    assert judge(replace(NOTHING, casts=(replace(CASTS, gone=False),)), "cuda") == []


def test_what_no_capture_came_to_is_suspected_and_last() -> None:
    seen = replace(NOTHING, refusals=(REFUSED,), suspected=(ITEM,))
    assert [finding.proof for finding in judge(seen, "cuda")] == [Proof.CONFIRMED, Proof.SUSPECTED]


def test_the_rules_that_are_emitted_are_the_checks() -> None:
    assert list(EMITTED) == [code for code, rule in RULES.items() if rule.check == "capture"]


def test_names_for_sentences() -> None:
    assert spoken(Operation("Tensor.__repr__", Kind.HOST_READ, None)).startswith("print")
    assert spoken(Operation("aten.x.y", Kind.HOST_READ, PLACE)) == "aten.x.y"
    assert spoken(Operation("", Kind.UNKNOWN, PLACE)) == "`if x.sum().item():`"
    assert spoken(Operation("", Kind.UNKNOWN, None)) == "an operation"


def test_a_first_use_is_called_by_its_line_and_not_by_a_call_of_its_library() -> None:
    malloc = replace(REFUSED, operation=Operation("cudaMalloc", Kind.ALLOCATION, PLACE), api="cudaMalloc")
    [finding] = judge(replace(NOTHING, first_uses=(FirstUse(malloc, (Attempt(False), Attempt(False))),)), "cuda")
    assert finding.message.startswith("`if x.sum().item():` does something for the first time")
    assert "cudaMalloc returns CUDA error 900" in finding.message
