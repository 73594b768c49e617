"""SPEC -> target: how it is called, with what, and what it may return."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cudagraph_doctor import loader
from cudagraph_doctor.errors import Inconclusive, TargetError, UsageError
from cudagraph_doctor.settings import Settings

Write = Callable[[str, str], Path]

CLASS = """
class Target:
    def __init__(self, **made_with): self.made_with = made_with
    buckets = [1, 2, 4]
    def next_inputs(self, step, n): ...
    def forward(self, inputs): ...
    def reset(self): ...
"""


@pytest.fixture(autouse=True)
def imports_are_undone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def load(spec: str = "mine.py", **settings: Any) -> loader.Loaded:
    return loader.load(Settings("diff", spec, **settings), "cpu:0")


def made_with(in_folder: Write, signature: str, **settings: Any) -> dict[str, Any]:
    """What a factory of this signature is called with."""
    in_folder("mine.py", f"{CLASS}\ndef target({signature}): return Target(**locals())")
    target: Any = load(**settings).target
    made: dict[str, Any] = target.made_with
    return made


def refusal(in_folder: Write, text: str, **settings: Any) -> str:
    in_folder("mine.py", text)
    with pytest.raises(TargetError) as refused:
        load(**settings)
    return str(refused.value)


def test_a_function_is_called_with_the_device_and_the_seed_if_it_takes_one(in_folder: Write) -> None:
    assert made_with(in_folder, "device", seed=3) == {"device": "cpu:0"}


def test_seed(in_folder: Write) -> None:
    assert made_with(in_folder, "device, seed", seed=3) == {"device": "cpu:0", "seed": 3}


def test_seed_as_an_argument_wins(in_folder: Write) -> None:
    assert made_with(in_folder, "device, seed: int", seed=3, target_args={"seed": "5"})["seed"] == 5


@pytest.mark.parametrize(
    ("parameter", "text", "value"),
    [
        ("x: int", "3", 3),
        ("x: float", "1e-3", 1e-3),
        ("x: bool", "no", False),
        ("x: bool", "True", True),
        ("x: str", "3", "3"),
        ("x: int | None = None", "none", None),
        ("x: int | None = None", "7", 7),
        ("x: int | str", "seven", "seven"),
        ("x: int | float", "0.5", 0.5),
        ("x=1", "2", 2),
        ("x=1.0", "2", 2.0),
        ("x=True", "off", False),
        ("x=None", "2", "2"),
        ("x", "2", "2"),
        ("x: NotDefined = 1", "2", "2"),
        ("x: int | None, y: NotDefined = 1", "2", 2),
        ("**kwargs", "2", "2"),
    ],
)
def test_arguments_are_converted(in_folder: Write, parameter: str, text: str, value: object) -> None:
    annotations = "from __future__ import annotations\n"
    in_folder("mine.py", f"{annotations}{CLASS}\ndef target(device, {parameter}): return Target(**locals())")
    target: Any = load(target_args={"x": text}).target
    found = target.made_with.get("kwargs", target.made_with)["x"]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("signature", "arguments", "said"),
    [
        ("device, width: int", {}, "needs the argument width"),
        ("device, width: int", {"width": "wide"}, '"wide" is no int'),
        ("device, deep: bool", {"deep": "2"}, '"2" is no bool'),
        ("device, width=1", {"widht": "2"}, 'takes no argument "widht". Did you mean "width"?'),
        ("device", {"device": "cuda:1"}, "set by the doctor itself"),
        ("width=1", {}, "does not take the argument device"),
    ],
)
def test_arguments_that_do_not_fit(in_folder: Write, signature: str, arguments: dict[str, str], said: str) -> None:
    assert said in refusal(in_folder, f"def target({signature}): ...", target_args=arguments)


def test_a_class_and_an_instance(in_folder: Write) -> None:
    in_folder("mine.py", f"{CLASS}\ntarget = Target()")
    assert load().form == "loop"
    assert load("mine.py:Target").form == "loop"
    with pytest.raises(TargetError, match="takes no arguments"):
        load(target_args={"x": "1"})


def test_an_instance_that_can_be_called_is_not_called(in_folder: Write) -> None:
    in_folder("mine.py", f"{CLASS}\nclass Model(Target):\n  def __call__(self): raise OSError\ntarget = Model()")
    assert load().form == "loop"


def test_a_callable_object_that_makes_targets(in_folder: Write) -> None:
    in_folder("mine.py", f"{CLASS}\nclass Make:\n  def __call__(self, device): return Target()\ntarget = Make()")
    assert load().form == "loop"


@pytest.mark.parametrize("returned", ["None", "Target", "42"])
def test_what_is_no_target(in_folder: Write, returned: str) -> None:
    said = refusal(in_folder, f"{CLASS}\ndef target(device): return {returned}")
    assert "did not return a target" in said or "is no target" in said


def test_an_asynchronous_factory(in_folder: Write) -> None:
    assert "did not return a target" in refusal(in_folder, f"{CLASS}\nasync def target(device): return Target()")


@pytest.mark.parametrize("error", ["ValueError('no weights')", "SystemExit(2)"])
def test_a_factory_that_raises(in_folder: Write, error: str) -> None:
    said = refusal(in_folder, f"def target(device):\n    raise {error}")
    assert "target(device='cpu:0') raised an exception" in said
    assert "at mine.py:2 in target" in said


def test_memory_that_runs_out_is_not_the_users_mistake(in_folder: Write) -> None:
    in_folder("mine.py", "import torch\ndef target(device):\n    raise torch.OutOfMemoryError('CUDA out of memory')")
    with pytest.raises(Inconclusive, match="not enough memory"):
        load()


def test_a_factory_that_parses_arguments(in_folder: Write) -> None:
    in_folder(
        "mine.py",
        f"import argparse\n{CLASS}\n"
        "def target(device):\n    argparse.ArgumentParser().parse_args()\n    return Target()",
    )
    assert load().form == "loop"


def test_buckets_asked_for_have_to_exist(in_folder: Write) -> None:
    in_folder("mine.py", f"{CLASS}\ntarget = Target()")
    assert load(buckets=(2, 4)).form == "loop"
    with pytest.raises(UsageError, match="no bucket 3, 8") as refused:
        load(buckets=(2, 3, 8))
    assert "its buckets are 1, 2, 4" in str(refused.value)


def test_the_description(in_folder: Write) -> None:
    file = in_folder("mine.py", f"{CLASS}\ntarget = Target")
    about = load().description
    assert about["file"] == str(file)
    assert about["line"] == 2
    assert about["form"] == "loop"
    assert about["buckets"] == [1, 2, 4]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"twin": True}, "no fault is named"),
        ({"spec": "mine.py", "fault": "x"}, "for the bundled model"),
        ({"fault": "no-such-fault"}, "no planted fault"),
    ],
)
def test_what_is_refused_before_anything_is_imported(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        loader.refuse_early(Settings("diff", **settings))
