"""SPEC -> object: what a user may write, and what his module may do while it is imported."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cudagraph_doctor import spec
from cudagraph_doctor.errors import TargetError, UsageError

Write = Callable[[str, str], Path]


@pytest.fixture(autouse=True)
def imports_are_undone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def get(text: str, app_dir: str = ".") -> object:
    return spec.resolve(spec.parse(text), app_dir)


@pytest.mark.parametrize(
    ("text", "kind", "where", "attr"),
    [
        ("reference", "reference", "reference", "auto"),
        ("reference:loop", "reference", "reference", "loop"),
        ("my_engine.decode:step", "module", "my_engine.decode", "step"),
        ("my_engine.decode:Engine.step", "module", "my_engine.decode", "Engine.step"),
        ("my_engine", "module", "my_engine", "target"),
        ("serving/decode.py", "file", "serving/decode.py", "target"),
        ("serving/decode.py:step", "file", "serving/decode.py", "step"),
        ("C:\\serving\\decode.py", "file", "C:\\serving\\decode.py", "target"),
        ("C:\\serving\\decode.py:step", "file", "C:\\serving\\decode.py", "step"),
        ("./reference.py:loop", "file", "./reference.py", "loop"),
    ],
)
def test_parse(text: str, kind: str, where: str, attr: str) -> None:
    assert spec.parse(text) == spec.Spec(kind, where, attr)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("  ", "is empty"),
        ("reference:engin", 'Did you mean "engine"?'),
        ("serving/decode", "with its suffix"),
        ("serving/decode:step", "with its suffix"),
        ("decode.py:", "is no attribute name"),
        ("decode.py:target()", "is no attribute name"),
        ("decode:a..b", "is no attribute name"),
        ("my-engine:step", "is no module name"),
        (".engine:step", "is no module name"),
    ],
)
def test_parse_refuses(text: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        spec.parse(text)
    assert said in str(refused.value)


def test_a_file_with_neighbours_and_dataclasses(in_folder: Write) -> None:
    in_folder("serving/sizes.py", "WIDTH = 3")
    in_folder(
        "serving/decode.py",
        "from __future__ import annotations\n"
        "import dataclasses, typing\n"
        "from sizes import WIDTH\n"
        "@dataclasses.dataclass\n"
        "class Step:\n"
        "    width: typing.ClassVar[int] = WIDTH\n"
        "    rows: int = 0\n",
    )
    step = get("serving/decode.py:Step")
    assert isinstance(step, type)
    assert get("serving/decode.py:Step.width") == 3
    assert get("serving/decode.py:Step") is step  # imported once


def test_a_file_in_a_package(in_folder: Write) -> None:
    in_folder("app/__init__.py", "")
    in_folder("app/serving/__init__.py", "target = 'the package itself'")
    in_folder("app/serving/base.py", "VALUE = 7")
    in_folder("app/serving/decode.py", "from .base import VALUE as target")
    assert get("app/serving/decode.py") == 7
    assert "app.serving.decode" in sys.modules
    assert get("app/serving/__init__.py") == "the package itself"


def test_a_module_in_the_app_dir(in_folder: Write) -> None:
    in_folder("src/my_engine/__init__.py", "")
    in_folder("src/my_engine/decode.py", "target = 5")
    assert get("my_engine.decode", "src") == 5


def test_a_name_that_is_taken_leaves_the_other_alone(in_folder: Write) -> None:
    import queue

    in_folder("queue.py", "target = 'mine'")
    assert get("queue.py") == "mine"
    assert sys.modules["queue"] is queue


def test_a_module_that_parses_arguments_sees_none_of_ours(in_folder: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["cudagraph-doctor", "diff", "--steps", "3"])
    in_folder(
        "parses.py",
        "import argparse\n"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('--width', type=int, default=4)\n"
        "target = parser.parse_args().width\n",
    )
    assert get("parses.py") == 4
    assert sys.argv[1:] == ["diff", "--steps", "3"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import argparse\np = argparse.ArgumentParser()\np.add_argument('model')\np.parse_args()", "ends the process"),
        ("import sys\nsys.exit('usage: ...')", "mine.py:2: sys.exit('usage: ...')"),
        ("def target(:", "SyntaxError"),
        ("1 / 0", "ZeroDivisionError: division by zero, at mine.py:1: 1 / 0"),
        ("import does_not_exist", 'Install what is missing ("does_not_exist")'),
        ("import does_not_exist.at_all", 'Install what is missing ("does_not_exist")'),
        ("raise BaseException('odd')", "BaseException: odd"),
    ],
)
@pytest.mark.parametrize("named", ["mine.py", "mine"])
def test_what_a_module_may_not_do(in_folder: Write, text: str, said: str, named: str) -> None:
    in_folder("mine.py", text)
    with pytest.raises(TargetError) as refused:
        get(named)
    assert said in str(refused.value)
    assert "mine" not in sys.modules  # a second try starts anew


def test_the_users_traceback_is_kept_and_cut(in_folder: Write) -> None:
    in_folder("inner.py", "def fail():\n    raise OSError('no weights')")
    in_folder("mine.py", "import inner\ninner.fail()")
    with pytest.raises(TargetError) as refused:
        get("mine.py")
    trace = refused.value.traceback
    assert trace.startswith("Traceback")
    assert trace.index("mine.py") < trace.index("inner.py") < trace.index("OSError: no weights")
    assert "spec.py" not in trace


def test_an_interrupt_stays_one(in_folder: Write) -> None:
    in_folder("mine.py", "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        get("mine.py")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("decod.py", 'Did you mean "decode.py"?'),
        ("nowhere/decode.py", "does not exist"),
        ("decode.py:tarjet", 'Did you mean "target"?'),
        ("decode:target.stp", 'has no attribute "stp". Did you mean "step"?'),
        ("decod:target", 'no module "decod" (for the target "decod:target"). Did you mean "decode"?'),
        ("packge.decode:x", 'Did you mean "package"?'),
        ("package.missing:x", 'no module "package.missing"'),
        ("decode.target", 'Did you mean "decode:target"?'),
        ("folder.py", "is a folder"),
    ],
)
def test_what_does_not_exist_gets_near_names(in_folder: Write, text: str, said: str) -> None:
    in_folder("decode.py", "class target:\n    step = 1")
    in_folder("package/__init__.py", "")
    in_folder("folder.py/x", "")
    with pytest.raises(TargetError) as refused:
        get(text)
    assert said in str(refused.value).replace("./", "")
