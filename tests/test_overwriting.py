"""What is read is never written to, however its path is spelt, and nothing has run by then."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cudagraph_doctor import overwriting
from cudagraph_doctor.cli import main
from cudagraph_doctor.errors import UsageError
from cudagraph_doctor.overwriting import Named

Write = Callable[[str, str], Path]
SOURCE = "raise SystemExit('it ran')\n"


@pytest.fixture
def files(in_folder: Write) -> Path:
    """A folder with a file of each kind, and other names for them."""
    for name in ("victim.py", "pkg/__init__.py", "pkg/loop.py", "t.json.gz", "t.sqlite", "saved.json"):
        in_folder(name, SOURCE)
    os.symlink("t.sqlite", "link")
    os.link("t.sqlite", "hard")
    os.symlink(".", "here")
    return Path.cwd()


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["buckets", "t.json.gz", "--format", "json=t.json.gz"], ["json=t.json.gz", "the trace t.json.gz"]),
        (["buckets", "t.sqlite", "--format", "csv=./pkg/../t.sqlite"], ["csv=pkg/../t.sqlite", "the trace t.sqlite"]),
        (["buckets", "t.sqlite", "--format", "json=link"], ["json=link", "the trace t.sqlite"]),
        (["buckets", "link", "--format", "json=t.sqlite"], ["json=t.sqlite", "the trace link"]),
        (["buckets", "t.sqlite", "--format", "json=hard"], ["json=hard", "the trace t.sqlite"]),
        (["buckets", "t.sqlite", "--format", "json=here/t.sqlite"], ["json=here/t.sqlite", "the trace t.sqlite"]),
        (["buckets", "t.sqlite", "--compare", "saved.json", "--format", "json=saved.json"], ["--compare saved.json"]),
        (["diff", "victim.py", "--format", "json=victim.py"], ["json=victim.py", "the target's file victim.py"]),
        (["capture", "victim.py:make", "--format", "csv=here/victim.py"], ["the target's file victim.py"]),
        (["diff", "pkg.loop:make", "--format", "json=pkg/loop.py"], ["the target's file pkg/loop.py"]),
        (
            ["diff", "pkg", "--app-dir", "here", "--format", "json=pkg/__init__.py"],
            ["the target's file here/pkg/__init"],
        ),
        (["report", "saved.json", "--format", "csv=saved.json"], ["csv=saved.json", "the report saved.json"]),
        (["record", "victim.py", "-o", "victim.py"], ["-o victim.py", "the target's file victim.py"]),
        (["record", "victim.py", "-o", "t", "--format", "json=victim.py"], ["the target's file victim.py"]),
        (["record", "-o", "t", "--", "python", "serve.py", "t.sqlite"], ["-o t.sqlite", "the command's t.sqlite"]),
        (
            ["record", "-o", "t.json.gz", "--then-check", "--format", "json=t.json.gz"],
            ["-o t.json.gz", "json=t.json.gz"],
        ),
        (["diff", "--format", "json=new", "--format", "csv=./new"], ["json=new", "csv=new"]),
    ],
    ids=" ".join,
)
def test_refused(files: Path, words: list[str], named: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_text() for path in files.rglob("*") if path.is_file()}
    assert main(words) == 2
    said = capsys.readouterr().err
    assert all(name in said for name in named), said
    assert "would overwrite" in said or "would write the same file" in said
    assert {path: path.read_text() for path in files.rglob("*") if path.is_file()} == before


def test_other_files_and_shared_devices_are_let_pass(files: Path) -> None:
    outs = [Named("--format json", Path(os.devnull)), Named("--format csv", Path(os.devnull))]
    overwriting.refuse([*outs, Named("-o new", Path("new")), Named("-o t", Path("t"))], [Named("t", Path("t.sqlite"))])


def test_a_trace_that_is_recorded_again_is_no_input(files: Path) -> None:
    overwriting.refuse(overwriting.recorded(Path("t.sqlite")), overwriting.words(["python", "nothing.py"]))


def test_the_bundled_model_has_no_file_to_lose() -> None:
    assert overwriting.sources("reference:loop", ".") == []
    with pytest.raises(UsageError, match="SPEC is empty"):
        overwriting.sources("", ".")
