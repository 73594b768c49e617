"""The terminal's view of an audit, from a report as it would be read back from JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cudagraph_doctor.audit.costs import CostTable, KeyCost
from cudagraph_doctor.audit.job import Demands, Job, Source
from cudagraph_doctor.audit.simulate import Arrivals
from cudagraph_doctor.checks import bucket_audit
from cudagraph_doctor.findings import Report, report_from_json, to_json
from cudagraph_doctor.progress import Silent
from cudagraph_doctor.report import terminal
from cudagraph_doctor.report.view import View

COSTS = CostTable(
    tuple(
        KeyCost(n, 1.0 + n / 8, 9.0, graph_bytes=n << 20, pool_bytes=n << 19, capture_ms=50.0) for n in (1, 2, 4, 8, 16)
    ),
    "a made-up GPU",
    kv_bytes_per_token=1 << 16,
)


def shown(*options: dict[str, Any], verbose: bool = False, width: int = 100, **job: Any) -> str:
    sources = tuple(Source(f"{i}.yaml", one) for i, one in enumerate(options))
    outcome = bucket_audit.run(Job(sources, **job), Silent())[1]
    report = Report({"version": "0"}, {}, {"spec": "f.yaml"}, (outcome,))
    return terminal.render(report_from_json(to_json(report)), View(width, verbose=verbose))


def test_the_sentence_comes_first_and_lines_are_no_wider_than_asked(tmp_path: Path) -> None:
    (tmp_path / "w.csv").write_text("batch,count\n1,10\n3,30\n7,50\n20,10\n")
    text = shown({"buckets": [1, 2, 4, 8, 16], "max_batch": 20}, workload=tmp_path / "w.csv", costs=COSTS, width=80)
    lines = text.splitlines()
    assert lines[0].startswith("4 of 20 batch sizes have no graph (17 to 20 requests); under the workload 90.0%")
    assert all(len(line) <= 80 for line in lines)


def test_tables(tmp_path: Path) -> None:
    (tmp_path / "w.csv").write_text("batch,count\n1,10\n3,30\n7,50\n20,10\n")
    text = shown({"buckets": [1, 2, 4, 8, 16], "max_batch": 20}, workload=tmp_path / "w.csv", costs=COSTS)
    for part in (
        'Workload: column "batch" of w.csv, weighted by "count" (100 steps, 4 sizes).',
        "Costs: measured: a made-up GPU.",
        "5 graphs (5 full), sizes in requests.",
        "Hit rate 90.0% of the steps, eager 10.0% (",
        "Memory: 39 MiB with one pool, largest first (46.5 MiB with a pool each), or 624 tokens of KV cache.",
        "Capture: about 0.25 s.",
        "never used",
        "####################",
        "Best list of 4 keys: 1, 3, 7, 20: ",
        "measured (follows from the keys and the workload)",
    ):
        assert part in " ".join(text.split()), part


def test_a_long_list_is_cut_unless_verbose() -> None:
    options = {"buckets": list(range(1, 65)), "max_batch": 64}
    assert "48 more (--verbose)" in shown(options)
    assert "more (--verbose)" not in shown(options, verbose=True)


def test_several_sets_ranks_adapters_and_piecewise() -> None:
    two = {"max_batch": 4, "sets": {"verify": {"buckets": [4]}, "draft": {"buckets": [2, 4], "adapters": [0, 2]}}}
    text = shown(two, {"buckets": [4], "piecewise": [4, 8], "max_batch": 4, "padding": False})
    assert "rank 0: 0.yaml (plain): as given." in text and "rank 1: 1.yaml" in text
    assert "verify: 1 graphs (1 full)" in text
    assert "draft: 4 graphs (2 full, each for 2 numbers of adapters)" in text
    assert "3 graphs (1 full and 2 piecewise), sizes in requests; batches are not padded." in text


def test_a_simulated_course() -> None:
    text = shown({"buckets": [1, 2, 4, 8], "max_batch": 8}, arrivals=Arrivals(20, 100, seconds=5))
    assert "Simulated 5 s: the load recovers, or needs not to; at the end" in text and "with every size" in text


def test_inconclusive() -> None:
    text = shown({"buckets": [1], "max_batch": 1}, demands=Demands(max_padding=0.5))
    assert "Inconclusive: --max-padding cannot be answered" in text and "Fix: Give the traffic" in text
