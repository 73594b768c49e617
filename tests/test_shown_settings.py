"""`--show-settings` prints TOML that can be pasted."""

from __future__ import annotations

import tomllib
from pathlib import Path

from cudagraph_doctor.gate.selection import PYPROJECT, Entry
from cudagraph_doctor.options import Output
from cudagraph_doctor.shown_settings import Shown, text

SETTINGS = [
    Shown("spec", "serving/decode.py", "command line"),
    Shown("steps", 4, "pyproject.toml"),
    Shown("timeout", 1800.0, "default"),
    Shown("exhaustive", False, "default"),
    Shown("buckets", (1, 2), "command line"),
    Shown("select", ("CGD1",), "pyproject.toml"),
    Shown("rtol", {"": 0.1, "logits": 0.5}, "command line"),
    Shown("target-arg", {}, "default"),
    Shown("baseline", Path("known.json"), "pyproject.toml"),
    Shown("compare", None, "default"),
    Shown("debug", True, "command line", settable=False),
    Shown("in-process", False, "default", settable=False),
    Shown("format", (Output("terminal", None), Output("sarif", Path("a.sarif"))), "command line"),
]
IGNORES = [Entry("CGD217", PYPROJECT, True, 'only "logged"')]


def test_it_is_toml_and_says_where_each_value_is_from() -> None:
    shown = text(SETTINGS, IGNORES, "pyproject.toml")
    assert tomllib.loads(shown)["tool"]["cudagraph-doctor"] == {
        "spec": "serving/decode.py",
        "steps": 4,
        "timeout": 1800.0,
        "exhaustive": False,
        "buckets": [1, 2],
        "select": ["CGD1"],
        "rtol": {"": 0.1, "logits": 0.5},
        "baseline": "known.json",
        "format": ["terminal", "sarif=a.sarif"],
        "ignore": {"CGD217": 'only "logged"'},
    }
    assert "steps = 4  # pyproject.toml" in shown.splitlines()
    assert 'spec = "serving/decode.py"  # command line' in shown.splitlines()
    assert shown.startswith("# pyproject.toml\n")
    assert "# debug = true  # command line" in shown.splitlines()
    assert "in-process" not in shown


def test_without_a_file() -> None:
    assert text([], [], "").startswith("# no pyproject.toml with this table")
