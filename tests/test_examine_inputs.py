"""`inputs` on the command line: the picture, the store, a stored run judged again, scripts, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cudagraph_doctor import examine_inputs
from cudagraph_doctor.cli import main
from cudagraph_doctor.display import Display
from cudagraph_doctor.findings import Proof, Report, Status
from cudagraph_doctor.replays import store
from cudagraph_doctor.replays.model import History, Run
from cudagraph_doctor.replays.options import Again
from cudagraph_doctor.report.terminal import render
from cudagraph_doctor.report.view import View
from cudagraph_doctor.settings import Settings

BAD = str(Path(__file__).resolve().parents[1] / "docs" / "examples" / "CGD301_bad.py")
RUN = ["inputs", BAD, "--backend", "emulated", "--steps", "2", "--buckets", "4", "--in-process"]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one run, and the script beside it."""
    folder = tmp_path_factory.mktemp("inputs")
    assert main([*RUN, "--db", str(folder / "runs.db"), "--repro", str(folder / "scripts")]) == 1
    return folder


def test_a_run_shows_the_picture_above_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(RUN) == 1
    out = capsys.readouterr().out
    assert out.index("F  frozen") < out.index("CGD301 input-never-refreshed")


def test_json_is_not_mixed_with_the_picture(capsys: pytest.CaptureFixture[str], stored: Path) -> None:
    assert main([*RUN, "--format", "json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["settings"]["history"] == "" and report["outcomes"][0]["check"] == "inputs"
    assert main(["inputs", "--from", str(stored / "runs.db"), "--format", "json"]) == 1
    again = json.loads(capsys.readouterr().out)
    assert [f["fingerprint"] for f in again["outcomes"][0]["findings"]] == [
        f["fingerprint"] for f in report["outcomes"][0]["findings"]
    ]


def test_a_stored_run_is_judged_again(capsys: pytest.CaptureFixture[str], stored: Path) -> None:
    assert main(["inputs", "--from", str(stored / "runs.db")]) == 1
    out = capsys.readouterr().out
    assert "`slots` is never refreshed" in out and "F  frozen" in out


def test_a_stored_run_is_told_with_what_its_target_was_given() -> None:
    run = Run("serve.py:Loop", "loop", "emulated", arguments={"dtype": "bf16"}, fault="item (twin)")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Again, "history", lambda self: History(run))
        report, _ = examine_inputs.examine_again(Again(Path("runs.db")))
    shown = render(report, View(width=160))
    assert "inputs serve.py:Loop --target-arg dtype=bf16 --fault item --twin" in shown
    assert "Emulated on the CPU: in the run that was stored." in shown


def test_a_tensors_history_is_shown(capsys: pytest.CaptureFixture[str], stored: Path) -> None:
    assert main(["inputs", "--from", str(stored / "runs.db"), "--show", "slots"]) == 0
    assert "CGD301 from step 0 on" in capsys.readouterr().out


def test_a_script_is_written(stored: Path) -> None:
    (script,) = (stored / "scripts").iterdir()
    assert script.name == "CGD301_slots.py" and "cudagraph_doctor" not in script.read_text()


def test_values_stay_out_of_the_store(tmp_path: Path) -> None:
    assert main([*RUN, "--no-values", "--db", str(tmp_path / "runs.db")]) == 1
    history = store.load(tmp_path / "runs.db")
    assert history.readings and all(reading.held.data is None for reading in history.readings)


@pytest.mark.parametrize(
    "arguments",
    [
        ["inputs", "--show", "slots"],
        ["inputs", "--run", "1"],
        ["inputs", BAD, "--from", "runs.db"],
        ["inputs", "--from", "no-such.db"],
        [*RUN, "--db", "no/such/folder/runs.db"],
    ],
)
def test_what_cannot_be_meant_is_refused(arguments: list[str]) -> None:
    assert main(arguments) == 2


LATE = str(Path(__file__).resolve().parent / "replays" / "late_value.py")


def late(name: str, **more: Any) -> Report:
    """The steps asked for end before the value changes that `late_value.py` is about."""
    settings = Settings("inputs", f"{LATE}:{name}", backend="emulated", steps=4, in_process=True, **more)
    report, history = examine_inputs.examine_inputs(settings, Display())
    assert history is not None and set(history.not_checked) <= set(report.outcomes[0].not_checked)
    return report


@pytest.mark.parametrize(("name", "culprit"), [("Forgets", "temperature"), ("ForgetfulEngine", "static.temperature")])
def test_poison_leads_to_what_the_steps_asked_for_do_not_show(name: str, culprit: str) -> None:
    """Right by luck at all of them; found wrong, without poison, at a later step."""
    assert late(name).findings == ()
    report = late(name, poison=True)
    (finding,) = report.findings
    assert finding.culprit and (finding.culprit.name, finding.step) == (culprit, 12)
    assert (finding.code, finding.proof) == ("CGD301", Proof.CONFIRMED)
    assert list(finding.evidence["poison"]) == [culprit]
    assert report.settings["poison"] and report.outcomes[0].checked["inputs poisoned"] == 2


@pytest.mark.parametrize("name", ["Loop", "WhenItChanges", "Always", "Engine"])
def test_poison_alone_is_no_finding(name: str) -> None:
    report = late(name, poison=True)
    (outcome,) = report.outcomes
    assert (outcome.status, outcome.findings) == (Status.PASSED, ())
    said = [sentence for sentence in outcome.not_checked if "may stay as it is" in sentence]
    assert len(said) == (name != "Loop")


def test_poison_in_memory_of_peers_is_a_wrong_request(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inputs", f"{LATE}:OfPeers", "--backend", "emulated", "--poison", "--in-process"]) == 2
    assert "shares memory with peers" in capsys.readouterr().err


def test_steps_that_poison_asks_for_and_nobody_has() -> None:
    """The target ends after the steps asked for: they are judged, and the rest is said."""
    report = late("Ends", poison=True)
    (outcome,) = report.outcomes
    assert (outcome.status, len(outcome.steps)) == (Status.PASSED, 8)
    assert any(s.startswith("steps beyond the 4 asked for, which poison asks for") for s in outcome.not_checked)


def test_a_process_that_poison_ends_takes_nothing_along() -> None:
    settings = Settings("inputs", f"{LATE}:Dies", backend="emulated", steps=4, poison=True)
    report, _ = examine_inputs.examine_inputs(settings, Display())
    (outcome,) = report.outcomes
    assert (outcome.status, outcome.findings) == (Status.PASSED, ())
    assert any(
        sentence.startswith("what poisoned inputs show: The process was lost") for sentence in outcome.not_checked
    )
