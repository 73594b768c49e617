"""Whose line it is: frames made up by running code under a module name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from cudagraph_doctor.blame import frames
from cudagraph_doctor.findings import Location
from cudagraph_doctor.graph.callsite import callsite


def module(name: str, source: str, file: str = "", **names: Any) -> dict[str, Any]:
    """The globals of a module of that name."""
    space: dict[str, Any] = {"__name__": name, **names}
    exec(compile(source, file or f"/somewhere/{name.replace('.', '/')}.py", "exec"), space)
    return space


def hook() -> Callable[[], Location | None]:
    source = "def begin():\n    return inner()\ndef inner():\n    return callsite()"
    space = module("cudagraph_doctor.graph.watch", source, callsite=callsite)
    begin: Callable[[], Location | None] = space["begin"]
    return begin


def test_the_users_line_behind_torch() -> None:
    torchs = module("torch.cuda.graphs", "def enter():\n    return begin()", begin=hook())
    user = module("serve", "def capture():\n    x = 1\n    return enter()", enter=torchs["enter"])
    assert user["capture"]() == Location("/somewhere/serve.py", 3, "capture", "")


def test_a_module_whose_name_only_begins_alike_is_the_users() -> None:
    user = module("torchserve.runner", "def capture():\n    return begin()", begin=hook())
    found = user["capture"]()
    assert found is not None and found.file == "/somewhere/torchserve/runner.py"


def test_the_doctors_own_captures_have_no_line() -> None:
    proof = module("cudagraph_doctor.proof.arms", "def fresh():\n    return begin()", begin=hook())
    assert proof["fresh"]() is None


def test_a_hook_may_be_written_anywhere_in_the_doctor() -> None:
    source = "def begin():\n    return inner()\ndef inner():\n    return callsite()"
    check = module("cudagraph_doctor.replays.handover", source, callsite=callsite)
    user = module("serve", "def copy():\n    return begin()", begin=check["begin"])
    assert user["copy"]() == Location("/somewhere/serve.py", 2, "copy", "")


def test_a_runner_of_the_user_called_by_the_doctor_has_its_line() -> None:
    user = module("serve", "def capture():\n    return begin()", begin=hook())
    proof = module("cudagraph_doctor.proof.arms", "def fresh():\n    return capture()", capture=user["capture"])
    assert proof["fresh"]() == Location("/somewhere/serve.py", 2, "capture", "")


def test_bundled_targets_are_looked_at_as_a_users() -> None:
    bundled = module("cudagraph_doctor.reference_models.engine", "def capture():\n    return begin()", begin=hook())
    assert bundled["capture"]() is not None


@pytest.mark.parametrize("name", ["triton.runtime.jit", "cuda.core._launcher", "torch._ops"])
def test_libraries_that_launch_for_somebody_are_passed_over(name: str) -> None:
    library = module(name, "def launch():\n    return begin()", begin=hook())
    user = module("serve", "def step():\n    return launch()", launch=library["launch"])
    assert user["step"]() == Location("/somewhere/serve.py", 2, "step", "")


def test_a_generated_init_is_passed_over() -> None:
    @dataclass
    class Buffers:
        place: Any = field(default_factory=hook())

    found = Buffers().place  # made here
    assert found is not None and (found.file, found.code) == (__file__, "found = Buffers().place  # made here")


@pytest.mark.parametrize("file", ["<string>", "<frozen importlib._bootstrap>", "<attrs generated init serve.Buffers>"])
def test_code_in_no_file_is_passed_over(file: str) -> None:
    generated = module("serve", "def init():\n    return begin()", file, begin=hook())
    user = module("serve", "def capture():\n    return init()", init=generated["init"])
    assert user["capture"]() == Location("/somewhere/serve.py", 2, "capture", "")


def test_a_file_with_an_odd_name_is_the_users() -> None:
    user = module("serve", "def capture():\n    return begin()", "/somewhere/<new> serve.py", begin=hook())
    assert user["capture"]() == Location("/somewhere/<new> serve.py", 2, "capture", "")


def test_the_code_of_a_real_line() -> None:
    found = hook()()  # this one
    assert found is not None and found.code == "found = hook()()  # this one" and found.file == __file__


@pytest.mark.parametrize("act", ["found.append(begin())", "raise RuntimeError"])
def test_compiled_code_has_the_line_that_called_it(act: str) -> None:
    """What torch.compile makes of a function runs under the function's own name, at its first line."""
    found: list[Location | None] = []
    source = (
        f"def compile(graph, example):\n    def run(*args):\n        {act}\n        return graph(*args)\n    return run"
    )
    inductor = module("torch._inductor.output_code", source, begin=hook(), found=found)
    user = module("serve", "def inner(x):\n    y = x + 1\n    return y * 2\ndef step(x):\n    return compiled(x)")
    user["compiled"] = torch.compile(user["inner"], backend=inductor["compile"])
    try:
        user["step"](torch.ones(2))
    except RuntimeError as error:
        found += [Location("", line) for who, _, line in frames(error) if who == "user"][-1:]
    torch._dynamo.reset()
    assert [place.line for place in found if place] == [5]
