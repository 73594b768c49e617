"""`inputs` on the command line: the picture, the store, a stored run judged again, scripts, what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cudagraph_doctor import examine_inputs
from cudagraph_doctor.cli import main
from cudagraph_doctor.replays import store
from cudagraph_doctor.replays.model import History, Run
from cudagraph_doctor.replays.options import Again
from cudagraph_doctor.report.terminal import render
from cudagraph_doctor.report.view import View

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
