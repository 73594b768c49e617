"""Command-line values: what is read, what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cudagraph_doctor import options
from cudagraph_doctor.options import Output
from cudagraph_doctor.settings import Tolerance


def test_sizes() -> None:
    assert options.sizes(None) == ()
    assert options.sizes("4") == (4,)
    assert options.sizes("4, 1,4") == (4, 1, 4)


@pytest.mark.parametrize("text", ["", ",", "1,", "a", "1.5", "0", "2,-1"])
def test_sizes_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"integers|below 1"):
        options.sizes(text)


def test_pairs() -> None:
    assert options.pairs(["a=1", "b=", "path=x=y"]) == {"a": "1", "b": "", "path": "x=y"}


@pytest.mark.parametrize("texts", [["a"], ["=1"], ["a-b=1"], ["a=1", "a=2"]])
def test_pairs_refused(texts: list[str]) -> None:
    with pytest.raises(ValueError, match=r"name=value|given twice"):
        options.pairs(texts)


def test_bounds_and_tolerances() -> None:
    rtol = options.bounds(["0.1", "logits=1e-3"])
    atol = options.bounds(["a=b=0.5"])
    assert rtol == {"": 0.1, "logits": 1e-3}
    assert options.tolerances(rtol, atol) == {
        "": Tolerance(0.1, 0.0),
        "logits": Tolerance(1e-3, 0.0),
        "a=b": Tolerance(0.1, 0.5),
    }


@pytest.mark.parametrize("texts", [[""], ["x"], ["-1"], ["nan"], ["inf"], ["=1"], ["logits="], ["1", "2"]])
def test_bounds_refused(texts: list[str]) -> None:
    with pytest.raises(ValueError, match=r"no bound|two bounds"):
        options.bounds(texts)


def test_outputs(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    assert options.outputs([]) == (Output("terminal", None),)
    assert options.outputs(["json"]) == (Output("json", None),)
    assert options.outputs([f"json={file}"]) == (Output("terminal", None), Output("json", file))
    assert options.outputs([f"json={file}", "json"]) == (Output("json", file), Output("json", None))
    assert not file.exists()


def test_annotations_come_below_the_text() -> None:
    text, below = Output("terminal", None), Output("github", None)
    assert options.outputs(["github"]) == (text, below)
    assert options.outputs(["github", "terminal"]) == (text, below)
    log = Output("terminal", Path(os.devnull))
    assert options.outputs(["github", f"terminal={os.devnull}"]) == (log, below)


@pytest.mark.parametrize("texts", [["json", "github"], ["github", "sarif"], ["json", "terminal"], ["github", "json"]])
def test_only_text_and_annotations_share_stdout(texts: list[str]) -> None:
    with pytest.raises(ValueError, match="both go to stdout"):
        options.outputs(texts)


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_seconds_refused(value: float) -> None:
    with pytest.raises(ValueError, match="no number of seconds above 0"):
        options.seconds(value)


def test_seconds() -> None:
    assert options.seconds(0.5) == 0.5
