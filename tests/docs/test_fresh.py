"""What README and docs show is what the program prints."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
PINNED = next(
    line.removeprefix("torch==")
    for line in (ROOT / "constraints.txt").read_text().split()
    if line.startswith("torch==")
)


def load(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


regenerate = load(ROOT / "docs" / "regenerate.py")
PAGES = [page for page in regenerate.pages() if "<!-- end -->" in page.read_text()]


def test_the_pages_with_output_are_found() -> None:
    names = {page.relative_to(ROOT).as_posix() for page in PAGES}
    assert {"README.md", "docs/tutorial.md", "docs/reference/rules.md", "docs/reference/faults.md"} <= names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_page_is_fresh(page: Path) -> None:
    text = page.read_text()
    if "<!-- run " in text and not (torch.__version__.startswith(PINNED) and torch.version.cuda is None):
        pytest.skip(f"the output shown was made with torch {PINNED} for CPUs; this is {torch.__version__}")
    assert regenerate.regenerated(page) == text, "run `make fresh`"


def test_an_unknown_kind_of_block_is_an_error(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- weather today -->\n<!-- end -->\n")
    with pytest.raises(KeyError, match="weather"):
        regenerate.regenerated(page)


def test_blocks_without_an_argument_are_blocks_of_their_own(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- rules -->\nSTALE\n<!-- end -->\nbetween\n<!-- commands -->\nSTALE\n<!-- end -->\n")
    rules, between, commands = regenerate.regenerated(page).partition("<!-- end -->\nbetween\n")
    assert between and "CGD101" in rules and "capture" in commands and "STALE" not in rules + commands


def test_a_command_that_fails_is_an_error_and_not_an_output() -> None:
    with pytest.raises(RuntimeError, match="ended with 2"):
        regenerate.output("cudagraph-doctor explain CGD999")


def test_times_are_masked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- run cudagraph-doctor x -->\nold\n<!-- end -->\nrest\n")
    monkeypatch.setattr(regenerate, "output", lambda command: "done in … s")
    assert regenerate.regenerated(page) == (
        "<!-- run cudagraph-doctor x -->\n```console\n$ cudagraph-doctor x\ndone in … s\n```\n<!-- end -->\nrest\n"
    )


SHOWN = """
Clean: nothing wrong was found (diff looked at 24 steps); 1 note.

1. note CGD107 graph-numerics, bucket 4, first at step 5
   What     Graph 4 and eager differ by rounding only: logits: 2906 of 3072
            values differ, up to 2.03e-06 of 3.97.
   Fix      Nothing to do.

diff: passed in … s
  Checked: 24 steps, 3 graphs, 112 runs.
  Steps (. clean, n note):
    bucket 16  rows 16 15 9 16  ....
    bucket 4   rows 4 3 3 4     .nn.
"""
ELSEWHERE = """
Clean: nothing wrong was found (diff looked at 24 steps).

diff: passed in … s
  Checked: 24 steps, 3 graphs, 96 runs.
  Steps (. clean):
    bucket 16  rows 16 15 9 16  ....
    bucket 4   rows 4 3 3 4     ....
"""


def test_another_cpu_makes_no_page_stale() -> None:
    assert regenerate.comparable(SHOWN) == regenerate.comparable(ELSEWHERE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Clean", "Found 1 error"),
        ("24 steps", "12 steps"),
        ("rows 4 3", "rows 4 2"),
        ("....", "..X."),
        ("passed", "found"),
    ],
)
def test_anything_else_does(old: str, new: str) -> None:
    assert regenerate.comparable(SHOWN) != regenerate.comparable(SHOWN.replace(old, new))
