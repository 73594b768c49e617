"""The terminal's view of a trace, from a report as it would be read back from JSON."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cudagraph_doctor.checks import bucket_hits
from cudagraph_doctor.findings import Report, report_from_json, to_json
from cudagraph_doctor.misses.judged import Demands
from cudagraph_doctor.report import terminal
from cudagraph_doctor.report.view import View
from cudagraph_doctor.traces.collect import collect
from cudagraph_doctor.traces.sniff import sniff

if TYPE_CHECKING:
    from tests.traces.made_up import MadeUp


def shown(*paths: Path, verbose: bool = False, **demands: Any) -> str:
    outcome = bucket_hits.judge([collect(path, sniff(path)) for path in paths], Demands(**demands))
    report = Report({"version": "0"}, {}, {"spec": "t"}, (outcome,))
    return terminal.render(report_from_json(to_json(report)), View(verbose=verbose))


def a_loop(make: Callable[[], MadeUp]) -> MadeUp:
    loop = make()
    graphs = {bucket: loop.capture(40, bucket) for bucket in (8, 4, 2)}
    for i in range(100):
        loop.decode(i, 3 + i % 5, None, graphs[4 if i % 5 < 2 else 8])
    loop.eager(100, 9)
    return loop


def test_the_sentence_comes_first(made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    lines = shown(a_loop(made_up).nsys(tmp_path / "t")).splitlines()
    assert lines[0].startswith("101 decode steps: 100 replayed, 1 eager because batch 9 is above the largest")
    assert all(len(line) <= 80 for line in lines)


def test_timeline_and_tables(made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    text = shown(a_loop(made_up).nsys(tmp_path / "t"))
    assert "Steps (F full replay, e eager):" in text
    assert "F" * 74 in text and "F" * 26 + "e" in text
    assert "Buckets (from labels of captures):" in text and "never used" in text
    assert "Padding: 140 rows, 21.9% of the replayed rows" in text
    assert "Hit rate: 99.0% of the steps" in text
    assert "Launch tax: replayed steps take" in text
    assert "Host time from one replay to the next:" in text
    assert "1. warning CGD401 batch-above-largest-bucket, bucket 8, first at step 100" in text
    assert "Ranks:" not in text


def test_a_long_timeline_is_cut(made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    loop = made_up()
    graph = loop.capture(5, 4)
    for i in range(700):
        loop.decode(i, 4, 4, graph)
    text = shown(loop.nsys(tmp_path / "t"))
    assert "... and 108 more steps (--format csv)" in text


def test_all_steps_with_verbose(made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    path = a_loop(made_up).nsys(tmp_path / "t")
    assert "verdict" in shown(path, verbose=True) and "verdict" not in shown(path)


def test_ranks(made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    fast, slow = a_loop(made_up), made_up()
    slow.host_speed = 3.0
    graph = slow.capture(40, 8)
    for i in range(101):
        slow.decode(i, 8, None, graph)
    text = shown(fast.kineto(tmp_path / "a.json", rank=0), slow.kineto(tmp_path / "b.json", rank=1))
    assert "Ranks:" in text and "Straggler: rank 1 submits in" in text
    assert "Ranks differ in 101 steps, first in step 0:" not in text or "rank 0" in text


def test_nothing_found(made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    loop = made_up()
    loop.step(None, loose=3)
    text = shown(loop.nsys(tmp_path / "t"))
    assert text.startswith("No step was found.\nInconclusive: no step was found")
    assert "Fix: Say how your steps are labelled" in text


def test_a_missed_gate(made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    text = shown(a_loop(made_up).nsys(tmp_path / "t"), min_hit_rate=1.0)
    assert "1. error CGD400 unmet-gate" in text and "the hit rate is 99.0%, demanded are 100.0%" in text.replace(
        "\n            ", " "
    )
