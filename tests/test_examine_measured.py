"""What was measured goes on as keys and costs, and both halves become one outcome."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cudagraph_doctor import cli
from cudagraph_doctor.audit.costs import CostTable, KeyCost
from cudagraph_doctor.audit.job import Job
from cudagraph_doctor.examine_measured import asked, merged
from cudagraph_doctor.findings import Finding, Outcome, Proof, Severity, Status
from cudagraph_doctor.measuring.model import Measured, Measurement
from cudagraph_doctor.settings import Settings

SLOW = Finding("CGD515", "Slow.", Severity.WARNING, Proof.MEASURED, "Leave it out.")
HOLE = Finding("CGD501", "A hole.", Severity.ERROR, Proof.MEASURED, "Capture it.")
MEASURED = Outcome(
    "audit",
    Status.FOUND,
    not_checked=("a", "b"),
    checked={"measured": Measurement("loop", (Measured(8, 8, 5), Measured(4, 4, 1)), 8, left_out=(1,)).to_json()},
    findings=(SLOW,),
    seconds=1.0,
)


def test_keys_without_room_are_the_targets_keys_all_the_same() -> None:
    job = asked(Settings("audit", "here.py"), Job((), max_batch=12), MEASURED, None)
    [source] = job.sources
    assert (source.where, source.options) == ("here.py", {"buckets": [1, 4, 8], "max_batch": 12})
    assert not job.costs.measured
    table = CostTable((KeyCost(8, 1.0),), "here")
    assert asked(Settings("audit"), Job(()), MEASURED, table).costs is table
    assert asked(Settings("audit"), Job(()), MEASURED, None).sources[0].options["max_batch"] == 8


@pytest.mark.parametrize(
    ("static", "status"),
    [(Status.PASSED, Status.FOUND), (Status.FOUND, Status.FOUND), (Status.INCONCLUSIVE, Status.INCONCLUSIVE)],
)
def test_one_outcome(static: Status, status: Status) -> None:
    found = merged(MEASURED, Outcome("audit", static, not_checked=("b", "c"), findings=(HOLE,), seconds=0.5))
    assert (found.status, found.findings, found.not_checked) == (status, (SLOW, HOLE), ("a", "b", "c"))
    assert (found.seconds, found.checked["measured"]) == (1.5, MEASURED.checked["measured"])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_emulated_from_the_command_line(folder: Path) -> None:
    words = ["--target", "reference:loop", "-a", "preset=tiny", "--backend", "emulated", "--buckets", "2,4"]
    assert cli.main(["audit", *words, "--max-batch", "6", "--in-process", "--format", "json=r.json"]) == 1
    report: dict[str, Any] = json.loads((folder / "r.json").read_text())
    [outcome] = report["outcomes"]
    assert report["target"]["spec"].startswith("reference:loop")
    assert [finding["code"] for finding in outcome["findings"]] == ["CGD501"]
    assert [key["size"] for key in outcome["checked"]["measured"]["keys"]] == [2, 4]
    assert not outcome["checked"]["summary"]["costs"]["measured"]
    assert "times and memory: the captures are emulated" in outcome["not_checked"]


def test_no_costs_are_made_up_to_be_saved(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--target", "reference:loop", "-a", "preset=tiny", "--backend", "emulated", "--buckets", "1"]
    assert cli.main(["audit", *words, "--in-process", "--save-costs", "c.json"]) == 3
    assert "nothing was timed" in capsys.readouterr().err
    assert not (folder / "c.json").exists()


def test_a_target_that_cannot_be_measured(folder: Path) -> None:
    (folder / "broken.py").write_text(
        "class target:\n    buckets = [1]\n    def __init__(self, device): pass\n    def reset(self): pass\n"
        "    def next_inputs(self, step, n): raise KeyError(step)\n    def forward(self, inputs): pass\n"
    )
    assert cli.main(["audit", "--target", "broken.py", "--backend", "emulated", "--in-process"]) == 3
