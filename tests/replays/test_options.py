"""What is kept of a run, and what is looked at again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cudagraph_doctor.errors import UsageError
from cudagraph_doctor.findings import Culprit, Finding, Proof, Severity
from cudagraph_doctor.replays import store
from cudagraph_doctor.replays.model import History
from cudagraph_doctor.replays.options import Again, Keep, again
from cudagraph_doctor.report.layout import lay_out
from cudagraph_doctor.report.view import View

FINDING = Finding(
    "CGD301", "frozen", Severity.ERROR, Proof.CONFIRMED, "copy", Culprit("input", "slots"), step=0, key="4"
)


def test_nothing_is_kept_unless_asked_for(made_up: History, tmp_path: Path) -> None:
    Keep().check()
    assert Keep().keep(made_up, [FINDING], tmp_path) == [] and list(tmp_path.iterdir()) == []


def test_a_run_is_stored_and_scripts_are_written(made_up: History, tmp_path: Path) -> None:
    keep = Keep(tmp_path / "runs.db", tmp_path / "scripts")
    keep.check()
    told = keep.keep(made_up, [FINDING], tmp_path)
    assert told == [
        f"Run 1 is in {keep.db}: `cudagraph-doctor inputs --from {keep.db}` looks at it again.",
        f"{tmp_path}/scripts/CGD301_slots.py shows the fault with torch alone.",
    ]
    assert store.load(tmp_path / "runs.db") == made_up
    assert (tmp_path / "scripts" / "CGD301_slots.py").exists()
    keep.check()


def test_values_are_kept_out(made_up: History, tmp_path: Path) -> None:
    Keep(tmp_path / "runs.db").keep(made_up, [], tmp_path, values=False)
    assert store.load(tmp_path / "runs.db") == store.without_contents(made_up)


def test_where_no_script_can_be_made_the_command_is_told(made_up: History, tmp_path: Path) -> None:
    [told] = Keep(scripts=tmp_path / "scripts").keep(made_up, [replace(FINDING, proof=Proof.MEASURED)], tmp_path)
    assert "No script was written" in told and "cudagraph-doctor inputs serve.py:target" in told


@pytest.mark.parametrize("keep", [Keep(Path("file") / "runs.db"), Keep(scripts=Path("file")), Keep(Path("file"))])
def test_what_cannot_be_written_is_refused_before_the_run(
    keep: Keep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("no database, but rather long, so that it could be one" * 20)
    with pytest.raises(UsageError):
        keep.check()


def test_a_stored_run_is_looked_at_again(made_up: History, tmp_path: Path) -> None:
    file = tmp_path / "runs.db"
    store.save(file, made_up)
    for name, beginning in (("", "step "), ("slots", "slots  input")):
        chosen = again(None, file, None, name, Keep())
        assert chosen == Again(file, None, name)
        parts = chosen.parts(chosen.history(), 80)
        assert lay_out(parts, View()).startswith(beginning)


def test_without_from_a_target_is_run() -> None:
    assert again(None, None, None, "", Keep()) is None
    assert again("serve:target", None, None, "", Keep(Path("runs.db"))) is None


@pytest.mark.parametrize(
    ("spec", "source", "run", "name", "keep", "message"),
    [
        (None, None, None, "slots", Keep(), "--show is about a stored run"),
        (None, None, 3, "", Keep(), "--run is about a stored run"),
        ("serve:target", Path("a.db"), None, "", Keep(), 'the target "serve:target" would not be run'),
        (None, Path("a.db"), None, "", Keep(Path("b.db")), "--from runs nothing"),
    ],
)
def test_options_that_say_different_things(
    spec: str | None, source: Path | None, run: int | None, name: str, keep: Keep, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        again(spec, source, run, name, keep)
