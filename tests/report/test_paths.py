"""Paths as reports show them."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudagraph_doctor.findings import Location, Report
from cudagraph_doctor.report import paths


def test_below_the_working_directory_they_are_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "linked").symlink_to(tmp_path / "app")
    monkeypatch.chdir(tmp_path)
    assert paths.shown(str(tmp_path / "app" / "decode.py")) == "app/decode.py"
    assert paths.shown(str(tmp_path / "linked" / "decode.py")) == "app/decode.py"  # a file that git knows
    monkeypatch.chdir(tmp_path / "linked")
    assert paths.shown(str(tmp_path / "app" / "decode.py")) == "decode.py"


def test_elsewhere_they_are_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert paths.shown(str(tmp_path / "hereafter.py")) == str(tmp_path / "hereafter.py")


def test_where() -> None:
    assert paths.where(Location("/a/b.py", 3, "Engine.step")) == "/a/b.py:3 in Engine.step"
    assert paths.where(Location("/a/b.py", 3, "<module>")) == "/a/b.py:3"


def test_the_working_tree_is_the_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "serving" / "deep").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "serving" / "deep")
    assert paths.working_tree() == str(tmp_path / "serving" / "deep")
    (tmp_path / ".git").write_text("gitdir: elsewhere\n")  # a file in worktrees and submodules
    assert paths.working_tree() == str(tmp_path)


def test_in_the_tree_of_the_machine_that_made_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = Report({"working_tree": "/builds/app"}, {}, {}, ())
    assert paths.in_tree("/builds/app/serving/decode.py", there) == "serving/decode.py"
    assert paths.in_tree("/builds/apple/decode.py", there) == ""
    assert paths.in_tree("/usr/lib/python3/site-packages/x.py", there) == ""
    assert paths.in_tree("traces/run.sqlite", there) == "traces/run.sqlite"
    monkeypatch.chdir(tmp_path)
    assert paths.in_tree(str(tmp_path / "decode.py"), Report({}, {}, {}, ())) == "decode.py"  # of an older report
