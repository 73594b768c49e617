"""Reports reach their files whole or not at all."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from cudagraph_doctor import output
from cudagraph_doctor.errors import UsageError
from cudagraph_doctor.findings import Outcome, Report, Status, Step
from cudagraph_doctor.options import Output
from cudagraph_doctor.report import REPORTERS
from cudagraph_doctor.report.json import load
from cudagraph_doctor.report.view import View

REPORT = Report({"version": "1"}, {}, {"spec": "reference"}, (Outcome("diff", Status.PASSED),))


def write(*outputs: Output) -> None:
    output.write(REPORT, outputs, View())


def test_stdout_and_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(Output("terminal", None), Output("json", tmp_path / "a.json"), Output("terminal", tmp_path / "a.txt"))
    assert "Clean" in capsys.readouterr().out
    assert (tmp_path / "a.json").read_text().startswith('{\n  "schema_version"')
    assert "Clean" in (tmp_path / "a.txt").read_text()
    assert sorted(os.listdir(tmp_path)) == ["a.json", "a.txt"]  # no drafts left


def test_an_old_file_is_replaced_and_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text("old")
    (tmp_path / "link.json").symlink_to("real.json")
    write(Output("json", tmp_path / "link.json"))
    assert (tmp_path / "link.json").is_symlink()
    assert (tmp_path / "real.json").read_text() != "old"


def test_a_new_file_has_the_usual_mode(tmp_path: Path) -> None:
    write(Output("json", tmp_path / "a.json"))
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE((tmp_path / "a.json").stat().st_mode) == 0o666 & ~mask


def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    write(Output("json", pipe))
    reader.join(timeout=10)
    assert read[0].endswith("}\n")
    assert pipe.is_fifo()


def test_what_cannot_be_written_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.json"
    file.write_text("old")

    def full(self: Path, content: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(UsageError, match="No space left on device"):
        write(Output("json", file))
    assert file.read_text() == "old"


def test_the_width_is_that_of_columns_off_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert (output.view().width, output.view().color) == (80, False)
    monkeypatch.setenv("COLUMNS", "100")
    assert output.view().width == 100


@pytest.mark.parametrize("format", REPORTERS)
def test_what_has_no_encoding_is_escaped(format: str, tmp_path: Path) -> None:
    name = os.fsencode("größe 日.py").decode("ascii", "surrogateescape") + "\ud800"
    steps = (Step(0, 1, name, "clean"),)
    file = tmp_path / "a"
    output.write(
        Report({}, {}, {"spec": name}, (Outcome("diff", Status.PASSED, steps=steps),)),
        (Output(format, file),),
        View(),
    )
    assert "\\udcc3" in file.read_text(encoding="utf-8")
    if format == "json":
        assert load(file).target["spec"] == name
