"""The loop skeleton is a sound target, and one on which a fault is found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cudagraph_doctor import cli

Write = Callable[[str, str], Path]
SKELETON = Path(cli.__file__).parent / "skeletons" / "loop.py"
DIFF = ["diff", "my_target.py", "--backend", "emulated", "--steps", "4", "--buckets", "2,4"]


def test_it_is_clean_as_it_stands(in_folder: Write, capfd: pytest.CaptureFixture[str]) -> None:
    in_folder("my_target.py", SKELETON.read_text())
    assert cli.main(DIFF) == 0
    out = capfd.readouterr().out
    assert "Clean: nothing wrong was found" in out
    assert "form loop" in out


def test_padding_that_is_not_moved_away_is_found(in_folder: Write, capfd: pytest.CaptureFixture[str]) -> None:
    safe = 'static["slots"][n:].fill_(PADDING_SLOT)'
    assert safe in SKELETON.read_text()
    in_folder("my_target.py", SKELETON.read_text().replace(safe, "pass"))
    assert cli.main(DIFF) == 1
    assert "slots" in capfd.readouterr().out
