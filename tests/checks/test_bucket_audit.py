"""The static audit end to end: public holes, workloads of every source, what is not checked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cudagraph_doctor.audit.job import Demands, Job, Source
from cudagraph_doctor.audit.simulate import Arrivals
from cudagraph_doctor.checks import bucket_audit
from cudagraph_doctor.findings import Outcome, Status
from cudagraph_doctor.progress import Silent

if TYPE_CHECKING:
    from tests.traces.made_up import MadeUp


def audit(options: dict[str, Any], **job: Any) -> Outcome:
    return bucket_audit.run(Job((Source("f.yaml", options),), **job), Silent())[1]


def codes(outcome: Outcome) -> set[str]:
    return {finding.code for finding in outcome.findings}


@pytest.mark.parametrize(
    ("options", "engine", "code", "said"),
    [
        ({"max_num_seqs": 500}, "nano-vllm", "CGD501", "497 to 500 requests"),
        ({"max_num_seqs": 20}, "nano-vllm", "CGD501", "17 to 20 requests"),
        (
            {
                "max_num_seqs": 6,
                "speculative_config": {"num_speculative_tokens": 6},
                "compilation_config": {"max_cudagraph_capture_size": 42},
            },
            "vllm",
            "CGD503",
            "6 requests (42 tokens)",
        ),
        (
            {"buckets": [1, 2, 4, 8, 16], "unit": "tokens", "tokens_per_request": 3, "max_batch": 4},
            "plain",
            "CGD503",
            "1 to 4 requests (3, 6, 9, 12 tokens)",
        ),
        ({"cuda_graph_max_bs": 160, "max_running_requests": 4096}, "sglang", "CGD501", "161 to 4096 requests"),
    ],
)
def test_public_holes(options: dict[str, Any], engine: str, code: str, said: str) -> None:
    outcome = audit(options, engine=engine)
    assert outcome.status is Status.FOUND
    [found] = [finding for finding in outcome.findings if finding.code == code]
    assert said in found.message and found.proof.value == "measured"


def test_clean() -> None:
    outcome = audit({"buckets": [1, 2, 4], "max_batch": 4})
    assert (outcome.status, outcome.findings) == (Status.PASSED, ())
    assert outcome.checked["graphs"] == 3
    assert any("hit rate and padding of your traffic" in sentence for sentence in outcome.not_checked)


def test_the_batches_of_a_trace(made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    loop = made_up()
    graphs = {bucket: loop.capture(40, bucket) for bucket in (8, 4)}
    for i, batch in enumerate((3, 4, 7, 8)):
        loop.decode(i, batch, None, graphs[4 if batch <= 4 else 8])
    loop.eager(4, 9)
    file = loop.nsys(tmp_path / "t.sqlite")
    outcome = audit({"buckets": [4, 8], "max_batch": 16}, traces=(file,))
    [one] = outcome.checked["summary"]["configurations"][0]["sets"]
    assert one["traffic"]["hit_rate"] == 0.8 and one["traffic"]["padding_share"] == round(2 / 24, 6)
    assert outcome.checked["summary"]["workload"]["origin"] == "decode steps of t.sqlite"


def test_predicted_and_seen_agree(made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    """What the audit predicts for a trace's batches is what `buckets` sees in it."""
    from cudagraph_doctor.checks import bucket_hits
    from cudagraph_doctor.misses.judged import Demands as OfTraces

    loop = made_up()
    graphs = {bucket: loop.capture(40, bucket) for bucket in (16, 8, 4)}
    for i in range(60):
        batch = 1 + i % 18
        bucket = next((b for b in (4, 8, 16) if b >= batch), None)
        if bucket:
            loop.decode(i, batch, bucket, graphs[bucket])
        else:
            loop.eager(i, batch)
    file = loop.nsys(tmp_path / "t.sqlite")
    seen = bucket_hits.run([file], OfTraces(), "", Silent()).checked["summary"]
    outcome = audit({"buckets": [4, 8, 16], "max_batch": 18}, traces=(file,))
    predicted = outcome.checked["summary"]["configurations"][0]["sets"][0]["traffic"]
    assert round(predicted["hit_rate"], 4) == seen["hit_rate"]["by_steps"]
    assert round(predicted["padding_share"], 4) == seen["padding"]["share"]


def test_simulated_arrivals() -> None:
    outcome = audit({"buckets": [1, 2, 4, 8], "max_batch": 8}, arrivals=Arrivals(5, 50, seconds=5))
    told = outcome.checked["summary"]
    assert told["simulation"]["listed"]["steps"] == told["workload"]["steps"] > 100
    assert not told["simulation"]["never_recovers"]


def test_traffic_above_the_declared_most_is_said(tmp_path: Path) -> None:
    (tmp_path / "w.csv").write_text("batch\n1\n9\n9\n9\n")
    outcome = audit({"buckets": [1, 2], "max_batch": 2}, workload=tmp_path / "w.csv")
    assert (
        "whether 2 requests are the most: 75.0% of the workload's steps have more (up to 9 requests)"
        in outcome.not_checked
    )


def test_traffic_that_is_all_above_the_declared_most_is_not_judged(tmp_path: Path) -> None:
    (tmp_path / "w.csv").write_text("batch\n9\n")
    outcome = audit({"buckets": [1, 2], "max_batch": 2}, workload=tmp_path / "w.csv")
    assert outcome.status is Status.INCONCLUSIVE
    assert "more than the 2 requests that are declared" in outcome.reason and "--max-batch" in outcome.fix


def test_a_demand_without_an_answer_is_inconclusive() -> None:
    outcome = audit({"buckets": [1], "max_batch": 1}, demands=Demands(min_hit_rate=0.5))
    assert outcome.status is Status.INCONCLUSIVE and "--workload" in outcome.fix
    assert any(sentence.startswith("--min-hit-rate: ") for sentence in outcome.not_checked)


def test_what_a_version_decides_is_said() -> None:
    outcome = audit({"max_num_seqs": 100, "model": "m"})
    assert outcome.status is Status.PASSED
    assert (
        "which version runs: vllm-57355 is assumed, name yours with --rule; under vllm-30330 97 to 100 requests run "
        "piecewise; under vllm-50488 97 to 100 requests run piecewise" in outcome.not_checked
    )
    assert "options that say nothing about keys: model" in outcome.not_checked
    assert not any("which version" in s for s in audit({"max_num_seqs": 100}, rule="vllm-57355").not_checked)


def test_ranks_speak_for_themselves() -> None:
    sources = (
        Source("a.yaml", {"buckets": [1, 2], "max_batch": 2}),
        Source("b.yaml", {"buckets": [2], "max_batch": 2}),
    )
    outcome = bucket_audit.run(Job(sources), Silent())[1]
    assert codes(outcome) == {"CGD508"}
    assert outcome.checked["configurations"] == 2


@pytest.mark.parametrize("form", ["torch.json.gz", "node.sqlite.gz"])
@pytest.mark.parametrize("name", ["clean", "batch-above-largest", "batch-above-largest-twin"])
def test_predicted_and_seen_agree_on_recorded_traces(name: str, form: str, tmp_path: Path) -> None:
    """Of the bundled engine on an H200, whose runner does what the audit takes a runner to do."""
    import gzip

    from cudagraph_doctor.checks import bucket_hits
    from cudagraph_doctor.misses.judged import Demands as OfTraces

    file = tmp_path / f"{name}.{form.removesuffix('.gz')}"
    recorded = Path(__file__).resolve().parents[1] / "data" / "traces" / f"{name}.{form}"
    file.write_bytes(gzip.decompress(recorded.read_bytes()))
    seen = bucket_hits.run([file], OfTraces(), "", Silent()).checked["summary"]
    outcome = audit({"buckets": seen["buckets"]["sizes"], "max_batch": 16}, traces=(file,))
    predicted = outcome.checked["summary"]["configurations"][0]["sets"][0]["traffic"]
    assert predicted["hit_rate"] == pytest.approx(seen["hit_rate"]["by_steps"], abs=0.01)
    assert predicted["padding_share"] == pytest.approx(seen["padding"]["share"], abs=0.01)
