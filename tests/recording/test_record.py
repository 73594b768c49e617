"""The parent, with an nsys that is a script: what is run, exit codes, what is said where something is missing."""

from __future__ import annotations

import os
import sqlite3
import sys
from pathlib import Path

import pytest

from cudagraph_doctor.errors import Inconclusive, UsageError
from cudagraph_doctor.recording import record as module
from cudagraph_doctor.recording.play import MARK
from cudagraph_doctor.recording.record import Wanted, record
from cudagraph_doctor.settings import Settings
from cudagraph_doctor.traces import nsys_tool

FAKE = """#!/usr/bin/env python3
import json, os, shutil, subprocess, sys
words = sys.argv[1:]
folder = os.environ["FAKE_NSYS"]
if words == ["--version"]:
    print("NVIDIA Nsight Systems version 1.0")
elif words[0] == "profile":
    with open(f"{folder}/profile.json", "w") as out:
        json.dump(words, out)
    at = next(i for i, word in enumerate(words) if not word.startswith("--") and i)
    output = next(w for w in words if w.startswith("--output="))[9:]
    status = subprocess.run(words[at:]).returncode
    if os.environ.get("FAKE_REPORT", "yes") == "yes":
        open(f"{output}.nsys-rep", "w").write("NVIDIA Tegra Profiler Report")
    sys.exit(77 if status else 0)
elif words[0] == "export":
    shutil.copy(f"{folder}/export.sqlite", words[words.index("--output") + 1])
"""


@pytest.fixture
def nsys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a fake nsys on PATH; returns where it leaves what it was asked."""
    folder = tmp_path / "fake"
    folder.mkdir()
    (folder / "nsys").write_text(FAKE.replace("/usr/bin/env python3", sys.executable))
    (folder / "nsys").chmod(0o755)
    with sqlite3.connect(folder / "export.sqlite") as database:
        database.execute("CREATE TABLE exported (a)")
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_NSYS", str(folder))
    return folder


@pytest.fixture
def no_nsys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nsys_tool, "find", lambda: None)


def silent(text: str) -> None:
    pass


@pytest.mark.parametrize("code", [0, 5])
def test_a_command_keeps_its_exit_code(
    code: int, nsys: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program = f"import sys; print('to stdout'); print('to stderr', file=sys.stderr); sys.exit({code})"
    done = record(Wanted(tmp_path / "t", (sys.executable, "-c", program), graph_trace="node"), silent)
    assert (done.trace, done.exit_code) == (tmp_path / "t.sqlite", code)
    assert done.trace.exists() and (tmp_path / "t.nsys-rep").exists()
    asked = (nsys / "profile.json").read_text()
    assert "--cuda-graph-trace=node" in asked and "--trace=cuda,nvtx" in asked
    said = capfd.readouterr()
    assert said.out == "" and "to stdout" in said.err and "to stderr" in said.err


def test_words_of_the_command_are_not_read_by_a_shell(nsys: Path, tmp_path: Path) -> None:
    odd = "$HOME `x` 'y' \\"
    program = f"import sys; sys.exit(0 if sys.argv[1] == {odd!r} else 9)"
    assert record(Wanted(tmp_path / "t", (sys.executable, "-c", program, odd)), silent).exit_code == 0


def test_nsys_leaves_no_report(nsys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_REPORT", "no")
    with pytest.raises(Inconclusive, match="nsys left no report"):
        record(Wanted(tmp_path / "t", (sys.executable, "-c", "")), silent)


def test_a_command_needs_nsys(no_nsys: None, tmp_path: Path) -> None:
    with pytest.raises(Inconclusive, match="nsys is needed") as caught:
        record(Wanted(tmp_path / "t", ("true",)), silent)
    assert "nor where Nsight Compute" in caught.value.seen
    with pytest.raises(Inconclusive, match="only be recorded with nsys"):
        record(Wanted(tmp_path / "t", ("true",), profiler="torch"), silent)


def test_a_target_falls_back_to_torch_profiler_and_says_so(no_nsys: None, tmp_path: Path) -> None:
    said: list[str] = []
    with pytest.raises(Inconclusive):  # there is no such target, or no GPU: either is the child's word
        record(Wanted(tmp_path / "t", settings=Settings("record", "nothing.py")), said.append)
    assert len(said) == 1 and said[0].endswith("recording with torch.profiler instead")


def test_the_word_of_the_child_is_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    line = MARK + '{"what": "No.", "seen": "x", "fix": "Do.", "exit_code": 2}'
    monkeypatch.setattr(module, "_player", lambda *_: [sys.executable, "-c", f"import sys; sys.exit({line!r})"])
    with pytest.raises(UsageError, match=r"No\."):
        record(Wanted(tmp_path / "t", settings=Settings("record"), profiler="torch"), silent)
    assert MARK not in capfd.readouterr().err


def test_a_target_that_dies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_player", lambda *_: [sys.executable, "-c", "raise SystemExit('out of luck')"])
    with pytest.raises(Inconclusive, match="ended with exit code 1") as caught:
        record(Wanted(tmp_path / "t", settings=Settings("record"), profiler="torch"), silent)
    assert caught.value.seen == "out of luck"


def test_a_hang_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_player", lambda *_: [sys.executable, "-c", "import time; time.sleep(60)"])
    with pytest.raises(Inconclusive, match="exit code -9"):
        record(Wanted(tmp_path / "t", settings=Settings("record", timeout_s=0.5), profiler="torch"), silent)


@pytest.mark.parametrize(
    ("name", "words"),
    [("no/t", "does not exist"), ("t.json", "will be a .json.gz"), ("t.sqlite", "will be a .json.gz")],
)
def test_outputs_that_cannot_be(name: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=words):
        record(Wanted(tmp_path / name, settings=Settings("record"), profiler="torch"), silent)


def test_a_suffix_that_fits_is_no_matter(nsys: Path, tmp_path: Path) -> None:
    done = record(Wanted(tmp_path / "t.sqlite", (sys.executable, "-c", "")), silent)
    assert done.trace == tmp_path / "t.sqlite"
