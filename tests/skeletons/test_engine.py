"""The engine skeleton is a sound target, and one on which a fault is found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cudagraph_doctor import cli

Write = Callable[[str, str], Path]
SKELETON = Path(cli.__file__).parent / "skeletons" / "engine.py"
DIFF = ["diff", "my_target.py", "--backend", "emulated", "--steps", "4", "--batch-sizes", "4,3"]


def test_it_is_clean_as_it_stands(in_folder: Write, capfd: pytest.CaptureFixture[str]) -> None:
    in_folder("my_target.py", SKELETON.read_text())
    assert cli.main(DIFF) == 0
    out = capfd.readouterr().out
    assert "Clean: nothing wrong was found" in out
    assert "form engine" in out


def test_tokens_that_are_not_staged_are_found(in_folder: Write, capfd: pytest.CaptureFixture[str]) -> None:
    staged = "self.tokens[:n].copy_(tokens)"
    assert staged in SKELETON.read_text()
    in_folder("my_target.py", SKELETON.read_text().replace(staged, "pass"))
    assert cli.main(DIFF) == 1
    assert "tokens" in capfd.readouterr().out
