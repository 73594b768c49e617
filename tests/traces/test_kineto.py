"""torch.profiler traces: the same steps as from nsys, in every form of the file; what is none is refused."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cudagraph_doctor.errors import DoctorError, Inconclusive, UsageError
from cudagraph_doctor.misses.judged import Demands, judge_all
from cudagraph_doctor.traces import kineto
from cudagraph_doctor.traces.collect import collect
from cudagraph_doctor.traces.sniff import sniff
from cudagraph_doctor.traces.steps import Trace

if TYPE_CHECKING:
    from tests.traces.made_up import MadeUp


def a_loop(make: Callable[[], MadeUp]) -> MadeUp:
    loop = make()
    graphs = {bucket: loop.capture(40, bucket) for bucket in (8, 4)}
    for i, (batch, bucket) in enumerate(((3, 4), (7, 8), (4, 4))):
        loop.decode(i, batch, bucket, graphs[bucket])
    loop.eager(3, 9)
    return loop


def read(path: Path) -> Trace:
    return collect(path, sniff(path))


def verdicts(trace: Trace) -> str:
    return " ".join(step.verdict.value for step in judge_all([trace], Demands()).steps)


@pytest.mark.parametrize("options", [{}, {"hip": True}, {"graph_ids": True}, {"rank": 3}])
def test_steps(options: dict[str, Any], made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    trace = read(a_loop(made_up).kineto(tmp_path / "t.json.gz", **options))
    assert verdicts(trace) == "FULL FULL FULL EAGER"
    assert [step.graph_kernels for step in trace.steps] == [40, 40, 40, 0]
    assert [step.loose_launches for step in trace.steps] == [3, 3, 3, 45]
    assert trace.steps[0].graphs == (("4",) if "graph_ids" in options else ("",))
    assert trace.lanes[0].rank == options.get("rank")
    assert trace.lanes[0].name == (f"rank {options['rank']}" if "rank" in options else "process 4711")


def test_times_are_those_of_nsys(made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    loop = a_loop(made_up)
    ours, theirs = read(loop.kineto(tmp_path / "t.json")), read(loop.nsys(tmp_path / "t.sqlite"))
    for a, b in zip(ours.steps, theirs.steps, strict=True):
        assert a.submit_ns == pytest.approx(b.submit_ns, abs=1000)  # microseconds at 6.5e12 have few digits left
        assert a.gpu_busy_ns == pytest.approx(b.gpu_busy_ns, rel=0.1)


def test_a_bare_list(made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    path = a_loop(made_up).kineto(tmp_path / "t.json")
    path.write_text(json.dumps(json.loads(path.read_text())["traceEvents"]))
    assert verdicts(read(path)) == "FULL FULL FULL EAGER"


def test_odd_events_are_counted_and_left_out(made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    path = a_loop(made_up).kineto(tmp_path / "t.json")
    trace = json.loads(path.read_text())
    trace["traceEvents"] += [
        {"ph": "X", "cat": "kernel", "name": "k", "ts": 1},
        {"ph": "X", "cat": "cuda_runtime", "ts": 1, "dur": 1, "pid": 1, "tid": 1},
        {"ph": "X", "cat": "kernel", "name": "k", "ts": "x", "dur": 1, "args": {}},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaFree", "ts": 1, "dur": -1, "pid": 1, "tid": 1},
        "text",
        {"ph": "i", "name": "an instant"},
    ]
    path.write_text(json.dumps(trace))
    found = read(path)
    assert "5 events without a usable time, name or thread were left out" in found.missing
    assert verdicts(found) == "FULL FULL FULL EAGER"


def test_labels_that_fit_nothing(made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    loop = made_up()
    loop.step("decode it", loop.capture(40))
    trace = read(loop.kineto(tmp_path / "t.json"))
    assert (trace.unmatched_labels, trace.near_labels) == (1, ("decode it",))


def refusal(path: Path) -> DoctorError:
    with pytest.raises(DoctorError) as caught:
        read(path)
    return caught.value


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{}", "it has no list of traceEvents"),
        ('{"a": 1}', "it has no list of traceEvents"),
        ('{"traceEvents": 3}', "it has no list of traceEvents"),
        ('{"traceEvents": {"a": 1}}', "it has no list of traceEvents"),
        ("{nonsense", "is no trace"),
        ("[1, 2, 3]", "none of the 3 elements in its list is an event"),
        ('{"traceEvents": [null, {"a": 1}]}', "none of the 2 elements in its list is an event"),
    ],
)
def test_json_of_something_else(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(text)
    error = refusal(path)
    assert isinstance(error, UsageError) and words in error.what


@pytest.mark.parametrize("text", ["[]", '{"traceEvents": []}', '{"schemaVersion": 1, "traceEvents" : [ ]}'])
def test_a_trace_of_nothing(text: str, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(text)
    error = refusal(path)
    assert isinstance(error, Inconclusive) and "has no events" in error.what


@pytest.mark.parametrize("packed", [False, True])
def test_a_byte_order_mark_is_passed_over(packed: bool, made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    path = a_loop(made_up).kineto(tmp_path / "t.json")
    marked = b"\xef\xbb\xbf" + path.read_bytes()
    path.write_bytes(gzip.compress(marked) if packed else marked)
    assert verdicts(read(path)) == "FULL FULL FULL EAGER"


def test_no_calls_in_it(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text('{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mul", "ts": 1, "dur": 1}]}')
    error = refusal(path)
    assert isinstance(error, Inconclusive) and "no CUDA calls (1 other events)" in error.what


@pytest.mark.parametrize("packed", [False, True])
def test_cut_short(packed: bool, made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    path = a_loop(made_up).kineto(tmp_path / ("t.json.gz" if packed else "t.json"))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) * 2 // 3])
    error = refusal(path)
    assert isinstance(error, Inconclusive) and "cut short after" in error.what


def test_it_is_streamed(made_up: Callable[[], MadeUp], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are written in batches, so that a long trace is never held as a whole."""
    monkeypatch.setattr(kineto, "_BATCH", 7)
    flushed = []
    plain = kineto._Reader.flush

    def flush(reader: Any) -> None:
        flushed.append(len(reader._calls) + len(reader._activities))
        plain(reader)

    monkeypatch.setattr(kineto._Reader, "flush", flush)
    assert verdicts(read(a_loop(made_up).kineto(tmp_path / "t.json"))) == "FULL FULL FULL EAGER"
    assert len(flushed) > 10 and max(flushed) <= 14


def test_gzip_is_known_without_its_name(made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    path = a_loop(made_up).kineto(tmp_path / "t.json")
    path.write_bytes(gzip.compress(path.read_bytes()))
    assert verdicts(read(path)) == "FULL FULL FULL EAGER"
