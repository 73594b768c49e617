"""`buckets` end to end on made-up traces: each planted fault is found, its clean twin draws nothing, in every form."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cudagraph_doctor import policy
from cudagraph_doctor.checks import bucket_hits
from cudagraph_doctor.findings import Outcome, Report, report_from_json, to_json
from cudagraph_doctor.misses.judged import Demands

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
