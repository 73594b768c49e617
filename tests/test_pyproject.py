"""`[tool.cudagraph-doctor]`: what the command line would say, or an error that names the nearest key."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudagraph_doctor.errors import UsageError
from cudagraph_doctor.gate.selection import PYPROJECT, Entry
from cudagraph_doctor.pyproject import Configuration, Key, read

KEYS = {
    "fail-on": Key(),
    "steps": Key(),
    "buckets": Key(),
    "exhaustive": Key(flag=True),
    "format": Key(repeatable=True),
    "target-arg": Key(repeatable=True),
}


def reading(folder: Path, text: str) -> Configuration:
    (folder / "pyproject.toml").write_text(text)
    return read(KEYS, folder)


def table(folder: Path, text: str) -> Configuration:
    return reading(folder, f"[tool.cudagraph-doctor]\n{text}\n")


def test_values_are_what_the_command_line_would_say(tmp_path: Path) -> None:
    read = table(
        tmp_path,
        """
fail-on = "warning"
steps = 4
buckets = [1, 2, 4]
exhaustive = true
format = ["github", "sarif=out.sarif"]
target-arg = {preset = "small", layers = 2}
[tool.cudagraph-doctor.ignore]
CGD217 = "only logged"
""",
    )
    assert read.values == {
        "fail-on": "warning",
        "steps": "4",
        "buckets": "1,2,4",
        "exhaustive": True,
        "format": ["github", "sarif=out.sarif"],
        "target-arg": ["preset=small", "layers=2"],
    }
    assert read.ignores == (Entry("CGD217", PYPROJECT, True, "only logged"),)
    assert read.file == str(tmp_path / "pyproject.toml")


def test_one_value_of_a_repeatable_option(tmp_path: Path) -> None:
    assert table(tmp_path, 'format = "github"').values == {"format": ["github"]}


@pytest.mark.parametrize("text", ["", "[tool.ruff]\nselect = []\n", "tool = 1\n", "[project]\nname = 'x'\n"])
def test_without_a_table_nothing_is_set(tmp_path: Path, text: str) -> None:
    assert reading(tmp_path, text) == Configuration()


def test_without_a_file_nothing_is_set(tmp_path: Path) -> None:
    assert read(KEYS, tmp_path) == Configuration()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("fail_on = 'error'", 'Did you mean "fail-on"?'),
        ("step = 4", 'Did you mean "steps"?'),
        ("colour = 'red'", "Known keys: buckets, exhaustive, fail-on, format, ignore, steps, target-arg."),
        ("exhaustive = 'yes'", "Give it true or false."),
        ("steps = true", "a text, a number or a list"),
        ("buckets = [[1]]", "Give it texts and numbers."),
        ("steps = 2026-01-01", "Give it texts and numbers."),
        ("ignore = ['CGD217']", "a list, not a table"),
        ("ignore = {CGD217 = ''}", '"CGD217" has no reason'),
        ("ignore = {CGD9 = 'x'}", "no rule's code begins with"),
        ("steps = ", "does not parse"),
    ],
)
def test_refused_in_words(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        table(tmp_path, text)
    assert said in str(refused.value)


def test_a_table_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no table"):
        reading(tmp_path, "[tool]\ncudagraph-doctor = 1\n")


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="does not parse"):
        read(KEYS, tmp_path)


def test_a_file_that_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").mkdir()
    with pytest.raises(UsageError, match="cannot be read"):
        read(KEYS, tmp_path)
