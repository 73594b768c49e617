"""`buckets` end to end on made-up traces: each planted fault is found, its clean twin draws nothing, in every form."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cudagraph_doctor import policy
from cudagraph_doctor.checks import bucket_hits
from cudagraph_doctor.errors import UsageError
from cudagraph_doctor.findings import Outcome, Report, report_from_json, to_json
from cudagraph_doctor.misses.judged import Demands
from cudagraph_doctor.traces.steps import Lane, Trace

if TYPE_CHECKING:
    from tests.traces.made_up import MadeUp
    from tests.traces.scenarios import Scenario


class Silent:
    """A `Progress` that nobody watches."""

    def say(self, text: str) -> None: ...
    def stage(self, text: str, total: int) -> None: ...
    def advance(self, text: str = "") -> None: ...
    def journal(self, finding: object) -> None: ...
    def journal_clear(self) -> None: ...


def check(*paths: Path, pattern: str = "", **demands: Any) -> Outcome:
    return bucket_hits.run(paths, Demands(**demands), pattern, Silent())


def verdicts(outcome: Outcome) -> str:
    return " ".join(step.verdict for step in outcome.steps)


def codes(outcome: Outcome) -> set[str]:
    return {finding.code for finding in outcome.findings}


WRITERS: dict[str, Callable[[MadeUp, Path], Path]] = {
    "nsys node mode": lambda loop, folder: loop.nsys(folder / "t.sqlite", mode="node"),
    "nsys graph mode": lambda loop, folder: loop.nsys(folder / "t.sqlite", mode="graph"),
    "torch.profiler": lambda loop, folder: loop.kineto(folder / "t.json.gz"),
    "ROCm": lambda loop, folder: loop.kineto(folder / "t.json", hip=True),
}


@pytest.mark.parametrize("form", WRITERS)
def test_fault_is_found_and_its_twin_is_silent(
    form: str, pair: tuple[Scenario, Scenario], made_up: Callable[[], MadeUp], tmp_path: Path
) -> None:
    faulty, twin = pair
    if "CGD415" in faulty.codes and not form.startswith("nsys"):
        pytest.skip("torch.profiler records no return values")
    for scenario in (faulty, twin):
        loop = made_up()
        scenario.build(loop)
        outcome = check(WRITERS[form](loop, tmp_path), **scenario.demands)
        assert codes(outcome) == scenario.codes, (scenario.name, [f.message for f in outcome.findings])
        assert "UNKNOWN" not in verdicts(outcome)
        report = Report({}, {}, {}, (outcome,))
        assert policy.exit_code(report) == policy.OK
        assert report_from_json(to_json(report)) == report


def test_every_code_but_the_gates_has_a_pair(request: pytest.FixtureRequest) -> None:
    import sys

    pairs = sys.modules["made_up_traces.scenarios"].PAIRS
    planted = {code for faulty, _ in pairs.values() for code in faulty.codes}
    assert planted | {"CGD400"} == set(bucket_hits.RULES)


def sound_loop(made_up: Callable[[], MadeUp], folder: Path) -> Path:
    loop = made_up()
    graphs = {bucket: loop.capture(40, bucket) for bucket in (8, 4)}
    for i, batch in enumerate((3, 4, 7, 8)):
        loop.decode(i, batch, None, graphs[4 if batch <= 4 else 8])
    return loop.nsys(folder / "t.sqlite")


def test_replays_of_more_rows_than_the_largest_bucket_are_said(made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    file = sound_loop(made_up, tmp_path)
    said = " ".join(check(file, buckets=(1, 2, 4)).not_checked)
    assert "padding of 2 replayed steps: their sizes (7 and 8) are above the largest bucket, 4 (from --buckets)" in said
    assert "above the largest" not in " ".join(check(file, buckets=(4, 8)).not_checked)
    assert "above the largest" not in " ".join(check(file).not_checked)


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        (r"^forward (?P<batch>\d+)", ["fits none of the labels", 'such as "decode step=0 bs=3"']),
        (r"^decode step=\d+ (?P<batch>\w+)", ['The group "batch"', "in none of the labels", r"(?P<batch>\d+)"]),
    ],
)
def test_a_pattern_that_fits_nothing(
    pattern: str, said: list[str], made_up: Callable[[], MadeUp], tmp_path: Path
) -> None:
    with pytest.raises(UsageError) as refused:
        check(sound_loop(made_up, tmp_path), pattern=pattern)
    assert all(part in str(refused.value) for part in said), refused.value


def test_a_pattern_that_fits(made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    outcome = check(sound_loop(made_up, tmp_path), pattern=r"^decode step=\d+ bs=(?P<batch>\d+)")
    assert [step.rows for step in outcome.steps] == [3, 4, 7, 8]


def test_a_trace_named_twice(made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    file = sound_loop(made_up, tmp_path)
    with pytest.raises(UsageError, match="is named twice"):
        check(file, tmp_path / "." / file.name)


def test_two_traces_of_one_process_and_of_one_rank(made_up: Callable[[], MadeUp], tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    files = [sound_loop(made_up, tmp_path / name) for name in ("a", "b")]
    outcome = check(*files)
    assert [row["lane"] for row in outcome.checked["summary"]["ranks"]] == [
        "process 4711 of t.sqlite (1)",
        "process 4711 of t.sqlite (2)",
    ]
    lanes = [Trace(n, "nsys", "v", "node", "labels", (Lane("rank 0", n, 0),), ()) for n in ("a", "b")]
    assert (
        "whether they are one run: 2 traces say that they are rank 0" in bucket_hits.judge(lanes, Demands()).not_checked
    )
