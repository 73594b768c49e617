"""`init`: the skeletons work as they stand, and nothing of the user's is overwritten."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cudagraph_doctor import cli, scaffold
from cudagraph_doctor.errors import UsageError


@pytest.mark.parametrize("form", scaffold.FORMS)
def test_what_is_written_is_the_skeleton(
    form: str, in_folder: Callable[[str, str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["init", form, "my_target.py"]) == 0
    assert "cudagraph-doctor diff my_target.py" in capsys.readouterr().out
    assert Path("my_target.py").read_text() == (Path(cli.__file__).parent / "skeletons" / f"{form}.py").read_text()


def test_loop_is_the_default(in_folder: Callable[[str, str], Path]) -> None:
    assert cli.main(["init", "my_target.py"]) == 0
    assert "A target in loop form" in Path("my_target.py").read_text()


def test_an_existing_file_stays(in_folder: Callable[[str, str], Path]) -> None:
    file = in_folder("mine.py", "precious")
    with pytest.raises(UsageError, match="exists already"):
        scaffold.write("loop", file)
    assert file.read_text() == "precious"
    scaffold.write("loop", file, overwrite=True)
    assert "class Target" in file.read_text()


@pytest.mark.parametrize("name", ["target.txt", "my-target.py", "nowhere/target.py", ".py"])
def test_names_that_cannot_be(in_folder: Callable[[str, str], Path], name: str) -> None:
    with pytest.raises(UsageError) as refused:
        scaffold.write("loop", Path(name))
    assert refused.value.fix


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["foo", "x.py"], ['no target form "foo"', "init loop or engine, then the file (x.py)"]),
        (["lop", "x.py"], ['Did you mean "loop"?']),
        (["foo"], ['"foo" is no Python file', "Name it foo.py"]),
        (["engine"], ["no file is named", "init engine my_target.py"]),
        (["loop", "my-target.py"], ["cannot be imported", "letters, digits and _"]),
        (["loop", "a.py", "b.py"], ["3 words are too many"]),
    ],
)
def test_what_is_refused(
    words: list[str], said: list[str], in_folder: Callable[[str, str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["init", *words]) == 2
    text = " ".join(capsys.readouterr().err.split())
    assert all(part in text for part in said), text
    assert not list(Path().iterdir())
