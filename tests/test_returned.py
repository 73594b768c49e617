"""What optional members hold and return: taken as it should be, else refused in words that name the member."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from cudagraph_doctor import returned
from cudagraph_doctor.errors import TargetError

CACHE = torch.zeros(3)
GENERATOR = torch.Generator()
NOTHING = SimpleNamespace()


def giving(**members: Any) -> SimpleNamespace:
    """A target whose methods return these values, and whose attributes are these values."""
    attributes = ("generators", "pipelined")
    return SimpleNamespace(
        **{n: v if n in attributes or v is None else (lambda *_, v=v: v) for n, v in members.items()}
    )


def read(member: str) -> Callable[[Any], Any]:
    """How a member is read."""
    if member in ("state", "named"):
        return lambda target: returned.tensors(target, member)
    readers: dict[str, Callable[[Any], Any]] = {
        "reserved": returned.reserved,
        "roots": returned.roots,
        "generators": returned.generators,
        "pipelined": returned.pipelined,
        "interludes": returned.interludes,
        "untouchable": returned.untouchable,
        "key": lambda target: returned.key(target, 1, 4),
    }
    return readers[member]


@pytest.mark.parametrize(
    ("member", "value", "without"),
    [
        ("state", {"cache": CACHE}, {}),
        ("named", {}, {}),
        ("reserved", {"cache": [2]}, {}),
        ("roots", {"engine": NOTHING}, {"": NOTHING}),
        ("generators", (GENERATOR,), ()),
        ("generators", (), ()),
        ("pipelined", True, False),
        ("interludes", {"idle": print}, {}),
        ("untouchable", (CACHE,), ()),
        ("key", (2, "decode"), 4),
        ("key", 8, 4),
    ],
)
def test_what_is_as_it_should_be(member: str, value: Any, without: Any) -> None:
    assert read(member)(giving(**{member: value})) == value
    assert read(member)(NOTHING) == without, "the member is not there"


def test_a_key_of_none_and_a_list_of_generators() -> None:
    assert returned.key(SimpleNamespace(key=lambda i, n: None), 1, 4) is None
    assert returned.generators(giving(generators=[GENERATOR])) == (GENERATOR,)
    assert returned.generators(giving(generators=None)) == () and not returned.pipelined(giving(pipelined=None))


@pytest.mark.parametrize(
    ("member", "value", "said"),
    [
        *(
            (member, value, f"{member}() returned {what}, and not ")
            for member in ("state", "named", "reserved", "roots", "interludes")
            for value, what in (([1], "a list"), (3, "an int"), (CACHE, "a Tensor"), (NOTHING, "a SimpleNamespace"))
        ),
        ("state", {"x": 3}, 'state()["x"] is an int, and no tensor'),
        ("state", {"x": {"y": CACHE}}, 'state()["x"] is a dict, and no tensor'),
        ("named", {"a": None}, 'named()["a"] is None, and no tensor'),
        ("state", {"a": CACHE.to_sparse()}, "is a tensor without memory of its own"),
        ("state", {1: CACHE}, "state() has an int for a name"),
        ("generators", 3, "generators is an int, and no list of torch.Generator"),
        ("generators", [1], "generators holds an int, and no torch.Generator"),
        ("generators", CACHE, "generators is a Tensor"),
        ("generators", GENERATOR, "generators is a Generator, and no list"),
        ("interludes", {"idle": 3}, 'interludes()["idle"] is an int, and cannot be called'),
        ("untouchable", CACHE, "untouchable() returned a Tensor, and no list of tensors"),
        ("untouchable", {"peer": CACHE}, "untouchable() returned a dict"),
        ("untouchable", [3], "untouchable() returned a list with an int in it"),
        ("pipelined", CACHE, "pipelined is a Tensor, and no bool"),
        ("pipelined", "no", "pipelined is a str"),
        ("key", [1], "key(1, 4) returned a list"),
        ("key", CACHE, "key(1, 4) returned a Tensor"),
    ],
)
def test_what_is_not(member: str, value: Any, said: str) -> None:
    with pytest.raises(TargetError) as refused:
        read(member)(giving(**{member: value}))
    assert said in str(refused.value) and refused.value.seen and refused.value.fix


@pytest.mark.parametrize("member", ["state", "named", "reserved", "roots"])
def test_methods_that_return_nothing(member: str) -> None:
    with pytest.raises(TargetError, match=rf"{member}\(\) returned None, and not .*by name"):
        read(member)(SimpleNamespace(**{member: lambda: None}))
