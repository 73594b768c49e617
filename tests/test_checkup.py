"""A whole checkup: two faults are two causes, a sound step is said to be, failures and traces end as they should."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from cudagraph_doctor import checkup as whole
from cudagraph_doctor.checkup import Traces, checkup
from cudagraph_doctor.cli import main
from cudagraph_doctor.display import Display
from cudagraph_doctor.errors import Inconclusive, UsageError
from cudagraph_doctor.findings import Outcome, Report, Status
from cudagraph_doctor.in_process import session
from cudagraph_doctor.method import CHECKUP, REFUSED
from cudagraph_doctor.policy import FINDINGS
from cudagraph_doctor.settings import Settings

TARGET = {"spec": "x.py", "form": "loop"}


class Sound:
    """A step with two inputs on the device and one number on the host."""

    buckets = (2, 4)

    def __init__(self, device: str) -> None:
        numbers = torch.Generator().manual_seed(0)
        self.weight = torch.randn(8, 8, generator=numbers).to(device)
        self.table = torch.randn(16, 8, generator=numbers).to(device)

    def reset(self) -> None:
        pass

    def next_inputs(self, step: int, n: int) -> dict[str, Any]:
        numbers = torch.Generator().manual_seed(step)
        return {
            "hidden": torch.randn(n, 8, generator=numbers),
            "rows": torch.randint(0, 16, (n,), generator=numbers),
        }

    def forward(self, inputs: dict[str, Any]) -> torch.Tensor:
        result: torch.Tensor = inputs["hidden"] @ self.weight + self.table[inputs["rows"]]
        return result


class TwoFaults(Sound):
    """Staging forgets the rows, and the step scales by a Python number that changes."""

    def next_inputs(self, step: int, n: int) -> dict[str, Any]:
        return super().next_inputs(step, n) | {"scale": 1.0 + step}

    def update(self, static: dict[str, Any], fresh: dict[str, Any]) -> None:
        static["hidden"][: len(fresh["hidden"])].copy_(fresh["hidden"])
        static["scale"] = fresh["scale"]

    def forward(self, inputs: dict[str, Any]) -> torch.Tensor:
        result: torch.Tensor = (inputs["hidden"] @ self.weight) * inputs["scale"] + self.table[inputs["rows"]]
        return result


def examined(target: type[Sound]) -> Report:
    with session("emulated") as opened:
        return opened.examine(target, Settings(CHECKUP, steps=4))


def test_two_faults_are_two_root_causes() -> None:
    report = examined(TwoFaults)
    findings = report.findings
    named = {findings[cause.leading].code: findings[cause.leading].culprit for cause in report.causes}
    assert {code: culprit.name for code, culprit in named.items() if culprit} == {
        "CGD301": "rows",
        "CGD320": "aten.mul.Tensor, parameter 1 (other)",
    }
    followers = {findings[c.leading].code: [findings[n].code for n in c.others] for c in report.causes}
    assert followers == {"CGD301": ["CGD102"], "CGD320": ["CGD101"]}


def test_a_sound_step_has_no_cause() -> None:
    report = examined(Sound)
    assert report.causes == ()
    assert [(o.check, o.status) for o in report.outcomes] == [
        ("capture", Status.PASSED),
        ("diff", Status.PASSED),
        ("inputs", Status.PASSED),
    ]


def test_a_script_is_written_for_each_confirmed_cause(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    scripts = tmp_path / "scripts"
    words = ["checkup", "reference:loop", "--fault", "slot-mapping-not-copied", "-a", "preset=tiny", "--buckets", "4"]
    assert main([*words, "--backend", "emulated", "--steps", "2", "--repro", str(scripts)]) == FINDINGS
    [file] = scripts.iterdir()
    assert "CGD301" in file.name and "make_target" in file.read_text()
    assert f"Repro     {scripts}"[:40] in capfd.readouterr().out


def run(monkeypatch: pytest.MonkeyPatch, traces: Traces, *, backend: str = "emulated", refused: int = 0) -> Outcome:
    """What becomes of `buckets`, after checks on a target that found nothing but refused operations."""
    done = [Outcome("capture", Status.FOUND if refused else Status.PASSED, checked={REFUSED: refused})]
    if refused:
        done.append(Outcome("diff", Status.SKIPPED, "captures fail.", "Mend them."))
    report = Report({}, {"backend": backend}, TARGET, tuple(done))
    monkeypatch.setattr(whole, "examine_inputs", lambda settings, display, checks: (report, None))
    return checkup(Settings(CHECKUP), traces, None, Display()).outcomes[-1]


def test_without_a_trace_buckets_is_skipped_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = run(monkeypatch, Traces())
    assert (outcome.check, outcome.status) == ("buckets", Status.SKIPPED)
    assert "no trace was given" in outcome.reason and "--trace" in outcome.fix


def test_nothing_is_recorded_without_a_gpu_or_without_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "on a GPU only" in run(monkeypatch, Traces(record_to=Path("t"))).reason
    assert run(monkeypatch, Traces(record_to=Path("t")), backend="cuda", refused=1).reason == "captures fail."


def test_a_recording_that_fails_is_inconclusive(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: object) -> None:
        raise Inconclusive("nsys left no report.", seen="it ended with 1", fix="See what it printed.")

    monkeypatch.setattr(whole, "record", fails)
    outcome = run(monkeypatch, Traces(record_to=Path("t")), backend="cuda")
    assert outcome.status is Status.INCONCLUSIVE
    assert outcome.reason == "nsys left no report. Seen: it ended with 1."


def test_a_trace_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        run(monkeypatch, Traces((tmp_path / "missing.sqlite",)))


def test_a_trace_that_is_none_is_refused_before_the_target_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def runs(*_: object) -> None:
        raise AssertionError("the target ran")

    monkeypatch.setattr(whole, "examine_inputs", runs)
    no_trace = tmp_path / "trace.sqlite"
    no_trace.write_text("text")
    with pytest.raises(UsageError, match="is no trace"):
        checkup(Settings(CHECKUP), Traces((no_trace,)), None, Display())


def test_a_damaged_trace_does_not_take_the_rest_away(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    empty = tmp_path / "trace.sqlite"
    empty.touch()
    outcome = run(monkeypatch, Traces((empty,)))
    assert outcome.status is Status.INCONCLUSIVE
    assert "is empty" in outcome.reason


def test_a_trace_is_judged_with_the_rest(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen = Outcome("buckets", Status.PASSED)
    monkeypatch.setattr(whole, "outcome_of_traces", lambda paths, display: seen)
    trace = tmp_path / "trace.json"
    trace.write_text("{}")
    assert run(monkeypatch, Traces((trace,))) is seen


def test_the_command_in_a_real_process(capfd: pytest.CaptureFixture[str]) -> None:
    """A capture that fails is the one cause; what it makes pointless is said, in one child."""
    words = ["checkup", "reference:loop", "--fault", "item", "--backend", "emulated", "-a", "preset=tiny", "--quick"]
    assert main([*words, "--format", "json"]) == FINDINGS
    report = json.loads(capfd.readouterr().out)
    statuses = {outcome["check"]: outcome["status"] for outcome in report["outcomes"]}
    assert statuses == {"capture": "found", "diff": "skipped", "inputs": "skipped", "buckets": "skipped"}
    assert [(cause["leading"], cause["others"]) for cause in report["causes"]] == [(0, [])]
    assert report["settings"]["quick"] and report["settings"]["steps"] == 4
