"""nsys exports of all schemas and both modes give the same steps; what is missing is said; what is none is refused."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cudagraph_doctor.errors import DoctorError, Inconclusive, UsageError
from cudagraph_doctor.misses.judged import Demands, judge_all
from cudagraph_doctor.traces.collect import collect
from cudagraph_doctor.traces.labels import user_family
from cudagraph_doctor.traces.sniff import Form, sniff
from cudagraph_doctor.traces.steps import Trace

if TYPE_CHECKING:
    from tests.traces.made_up import MadeUp

SCHEMAS = ("3.0.0", "3.7.2", "3.11.1", "3.16.1", "3.20.3", "3.24.14", "3.25.0")


def a_loop(make: Callable[[], MadeUp]) -> MadeUp:
    """Three buckets, six steps; the last two are eager."""
    loop = make()
    graphs = {bucket: loop.capture(40, bucket) for bucket in (8, 4, 2)}
    for i, (batch, bucket) in enumerate(((2, 2), (3, 4), (4, 4), (7, 8))):
        loop.decode(i, batch, None, graphs[bucket], copies=1)
    for i in (4, 5):
        loop.eager(i, 9)
    return loop


def verdicts(trace: Trace) -> str:
    return " ".join(step.verdict.value for step in judge_all([trace], Demands()).steps)


EXPECTED = "FULL FULL FULL FULL EAGER EAGER"


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize("mode", ["node", "graph"])
def test_all_schemas(schema: str, mode: str, made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    trace = collect(a_loop(made_up).nsys(tmp_path / "t", schema, mode), Form.SQLITE)
    assert verdicts(trace) == EXPECTED
    assert f"schema {schema}" in trace.version
    old = int(schema.split(".")[1]) < 11
    assert trace.graph_mode == ("unknown" if mode == "graph" and schema == "3.0.0" else mode)
    if mode == "node":
        assert [step.graph_kernels for step in trace.steps[:4]] == [40] * 4
        assert all(step.gpu_busy_ns for step in trace.steps)
    elif old:
        assert trace.steps[0].graph_kernels is None
        assert [step.launches_without_rows for step in trace.steps[:4]] == [1] * 4
    else:
        assert [(step.graph_kernels, step.graph_kernels_from) for step in trace.steps[:4]] == [(40, "capture")] * 4
        assert all(step.gpu_busy_ns for step in trace.steps)


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize("mode", ["node", "graph"])
def test_buckets_come_from_the_labels_of_captures(
    schema: str, mode: str, made_up: Callable[[], MadeUp], tmp_path: Path
) -> None:
    run = judge_all([collect(a_loop(made_up).nsys(tmp_path / "t", schema, mode), Form.SQLITE)], Demands())
    assert (run.buckets.sizes, run.buckets.origin) == ((2, 4, 8), "labels of captures")
    assert [step.bucket for step in run.steps] == [2, 4, 4, 8, None, None]


@pytest.mark.parametrize(
    "options", [{"text_ids": False}, {"shuffle": True}, {"without": ("EXPORT_META_DATA", "META_DATA_CAPTURE")}]
)
def test_forms_of_the_same(options: dict[str, Any], made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    assert verdicts(collect(a_loop(made_up).nsys(tmp_path / "t", **options), Form.SQLITE)) == EXPECTED


def test_node_ids_of_old_drivers(made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    trace = collect(a_loop(made_up).nsys(tmp_path / "t", graph_ids=False), Form.SQLITE)
    assert verdicts(trace) == EXPECTED
    assert trace.steps[0].graphs == ("",)  # which graph it was is not known


def test_the_export_is_not_altered(made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    path = a_loop(made_up).nsys(tmp_path / "t.sqlite")
    path.chmod(0o400)
    before = path.read_bytes()
    collect(path, Form.SQLITE)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["t.sqlite"]


def test_correlation_ids_of_two_processes_collide(made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    loop = a_loop(made_up)
    loop.other_process(4712)
    for i in range(6):
        loop.eager(i, 3, kernels=20)
    trace = collect(loop.nsys(tmp_path / "t"), Form.SQLITE)
    assert [lane.name for lane in trace.lanes] == ["process 4711", "process 4712"]
    assert verdicts(trace) == EXPECTED + " EAGER" * 6
    assert [step.loose_launches for step in trace.steps] == [3] * 4 + [45] * 2 + [20] * 6


def test_own_pattern(made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    loop = made_up()
    graph = loop.capture(40)
    loop.step("gen 3/4", graph)
    own = user_family(r"^gen (?P<batch>\d+)/(?P<bucket>\d+)$")
    trace = collect(loop.nsys(tmp_path / "t"), Form.SQLITE, own)
    assert [(step.label.batch, step.label.bucket) for step in trace.steps] == [(3, 4)]
    assert trace.steps_from == "labels of --step-pattern"


# what is missing


def test_labels_that_fit_no_pattern_are_counted(made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    loop = made_up()
    graph = loop.capture(40)
    for i in range(3):
        loop.step(f"my decode #{i}", graph)
    trace = collect(loop.nsys(tmp_path / "t"), Form.SQLITE)
    assert (trace.unmatched_labels, trace.near_labels[0]) == (3, "my decode #0")
    assert trace.steps_from.startswith("no labels")


def test_launches_without_their_rows(made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    trace = collect(a_loop(made_up).nsys(tmp_path / "t", mode="graph", lost_rows=2), Form.SQLITE)
    assert "2 of 4 graph launches have no GPU rows" in trace.missing
    assert verdicts(trace) == EXPECTED  # the verdict rests on calls


def test_shifted_correlation_ids_are_told_from_misses(made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    loop = a_loop(made_up)
    for work in loop.work:
        work.correlation += 10_000 if work.node is not None else 0
    trace = collect(loop.nsys(tmp_path / "t"), Form.SQLITE)
    assert any("ids are shifted" in sentence for sentence in trace.missing)
    assert "EAGER" not in verdicts(trace)[: len("FULL FULL FULL FULL")]


def test_dropped_ranges(made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    loop = a_loop(made_up)
    loop.ranges.clear()
    assert any("profiler dropped them" in s for s in collect(loop.nsys(tmp_path / "t"), Form.SQLITE).missing)


def test_no_ranges_at_all(made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    trace = collect(a_loop(made_up).nsys(tmp_path / "t", without=("NVTX_EVENTS",)), Form.SQLITE)
    assert any("no NVTX ranges" in sentence for sentence in trace.missing)


def test_a_range_without_an_end_is_cut_off(made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    loop = a_loop(made_up)
    loop.ranges[-1].end = None
    trace = collect(loop.nsys(tmp_path / "t"), Form.SQLITE)
    assert verdicts(trace) == EXPECTED.removesuffix("EAGER") + "UNKNOWN"
    assert "1 steps are cut off: their range has no end, or lies outside the recorded calls" in trace.missing


def test_several_sessions(made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    loop = a_loop(made_up)
    for _ in range(2):
        loop.call("cudaProfilerStart_v4000")
    assert any("started 2 times" in sentence for sentence in collect(loop.nsys(tmp_path / "t"), Form.SQLITE).missing)


def test_no_gpu_rows(made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    loop = a_loop(made_up)
    loop.work.clear()
    trace = collect(loop.nsys(tmp_path / "t"), Form.SQLITE)
    assert any("no GPU activity" in sentence for sentence in trace.missing)
    assert verdicts(trace) == EXPECTED
    assert trace.steps[0].gpu_busy_ns is None


def test_the_environment_is_never_read_and_diagnostics_only_where_they_are_known(
    made_up: Callable[[], MadeUp], tmp_path: Path
) -> None:
    told = ("NVTX payload extension is incompatible. Provided compatibility ID 260 != 259", "see /home/me/secret.log")
    trace = collect(a_loop(made_up).nsys(tmp_path / "t", environment="hf_SECRET", diagnostics=told), Form.SQLITE)
    said = repr(trace)
    assert "SECRET" not in said and "/home/me" not in said
    assert "payload extension is incompatible" in said


def test_a_launch_that_failed_ran_nothing(made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    loop = made_up()
    graph = loop.capture(40, 4)
    loop.decode(0, 3, 4, graph)
    start = loop.now
    loop.call("cudaGraphLaunch_v10000", result=700)
    loop.range_since(start, "decode step=1 bs=3 bucket=4")
    trace = collect(loop.nsys(tmp_path / "t"), Form.SQLITE)
    assert [step.graph_launches for step in trace.steps] == [1, 0]
    (failure,) = trace.steps[1].failures
    assert failure == "cudaGraphLaunch returned 700 (an illegal memory access, in this or earlier work)"


def test_a_driver_launch_inside_a_runtime_launch_is_one(made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    loop = made_up()
    start = loop.now
    for _ in range(20):
        outer = loop.call("cudaLaunchKernel_v7000", 5_000)
        loop.now = outer.start
        inner = loop.call("cuLaunchKernel", 2_000, gap=100)
        loop.now = outer.end
        loop.run(inner)
    loop.range_since(start, "decode step=0 bs=1")
    assert [step.loose_launches for step in collect(loop.nsys(tmp_path / "t"), Form.SQLITE).steps] == [20]


def test_kernels_of_a_call_that_is_no_known_launch_count(made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    loop = made_up()
    start = loop.now
    for _ in range(7):
        loop.run(loop.call("cudaLaunchSomethingNew_v14000"))
    loop.range_since(start, "decode step=0 bs=1")
    assert [step.loose_launches for step in collect(loop.nsys(tmp_path / "t"), Form.SQLITE).steps] == [7]


# what is refused


def refusal(path: Path) -> DoctorError:
    with pytest.raises(DoctorError) as caught:
        collect(path, Form.SQLITE)
    return caught.value


def test_nvprof(tmp_path: Path) -> None:
    path = tmp_path / "t"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (_id_ INTEGER, cbid INTEGER, start INTEGER)")
    error = refusal(path)
    assert isinstance(error, UsageError) and "nvprof" in error.what


def test_another_database(tmp_path: Path) -> None:
    path = tmp_path / "t"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE songs (id INTEGER)")
    error = refusal(path)
    assert (
        isinstance(error, UsageError) and "no export of Nsight Systems" in error.what and error.seen == "tables songs"
    )


def test_no_calls(made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    path = a_loop(made_up).nsys(
        tmp_path / "t", without=("CUPTI_ACTIVITY_KIND_RUNTIME",), diagnostics=("No CUDA events collected. Sorry",)
    )
    error = refusal(path)
    assert isinstance(error, Inconclusive) and "holds no CUDA calls" in error.what and "No CUDA events" in error.seen


@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("CUPTI_ACTIVITY_KIND_RUNTIME", "correlationId"),
        ("CUPTI_ACTIVITY_KIND_KERNEL", "globalPid"),
        ("NVTX_EVENTS", "globalTid"),
        ("StringIds", "value"),
    ],
)
def test_columns_missing(table: str, column: str, made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    path = a_loop(made_up).nsys(tmp_path / "t", drop_columns={table: column} if table != "StringIds" else {})
    if table == "StringIds":
        with sqlite3.connect(path) as database:
            database.execute("ALTER TABLE StringIds RENAME COLUMN value TO text")
    error = refusal(path)
    assert isinstance(error, Inconclusive) and f"lacks the column {column}" in error.what


def test_names_of_calls_missing(made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    assert "has no StringIds" in refusal(a_loop(made_up).nsys(tmp_path / "t", without=("StringIds",))).what


def test_cut_short(made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    path = a_loop(made_up).nsys(tmp_path / "t")
    whole = path.read_bytes()
    for share in (0.1, 0.5, 0.9):
        path.write_bytes(whole[: int(len(whole) * share)])
        assert isinstance(refusal(path), Inconclusive)


def test_a_thousand_mutated_copies(made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    """Each is refused in words, or read; where structure or names are hurt, no step becomes another kind of replay."""
    path = a_loop(made_up).nsys(tmp_path / "t")
    whole = path.read_bytes()
    draw = random.Random(0)
    refused = 0
    wrong = []
    for _ in range(1000):
        mutated = bytearray(whole)
        for _ in range(draw.choice((1, 1, 1, 4, 64))):
            mutated[draw.randrange(len(mutated))] = draw.randrange(256)
        path.write_bytes(mutated)
        try:
            trace = collect(path, sniff(path))
        except DoctorError:
            refused += 1
            continue
        run = judge_all([trace], Demands())
        found = {step.record.label.number: step.verdict.value for step in run.steps if step.record.label.family}
        expected = dict(enumerate(EXPECTED.split()))
        wrong += [(n, v) for n, v in found.items() if n in expected and v not in (expected[n], "UNKNOWN")]
    assert 100 < refused < 1000
    assert wrong == []


@pytest.mark.parametrize("size", [50, 100])
def test_what_cannot_be_opened_is_called_by_its_name(size: int, made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    path = a_loop(made_up).nsys(tmp_path / "t")
    path.write_bytes(path.read_bytes()[:size])
    error = refusal(path)
    assert isinstance(error, Inconclusive) and "damaged or cut short" in error.what
    assert "mode=ro" not in error.seen and "file:" not in error.seen
