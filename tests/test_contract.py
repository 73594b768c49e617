"""The two forms are told apart by their members, and errors name the member."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from cudagraph_doctor import contract
from cudagraph_doctor.errors import TargetError


class Loop:
    buckets: Any = (1, 2, 4)

    def next_inputs(self, step: int, n: int) -> object:
        return None

    def forward(self, inputs: object) -> object:
        return inputs

    def reset(self) -> None:
        pass


class Engine:
    def reset(self) -> None:
        pass

    def step(self, i: int, n: int) -> object:
        return None

    def graphs(self, on: bool) -> None:
        pass


def loop_with(**members: object) -> object:
    return type("Mine", (Loop,), members)()


def engine_with(**members: object) -> object:
    return type("Mine", (Engine,), members)()


def refusal(target: object) -> str:
    with pytest.raises(TargetError) as refused:
        contract.check(target)
    return str(refused.value)


def test_two_forms() -> None:
    assert contract.check(Loop()) == "loop"
    assert contract.check(Engine()) == "engine"


@pytest.mark.parametrize("value", [[1], (1, 2), range(1, 5), torch.tensor([1, 2])])
def test_buckets_may_be_any_list_of_integers(value: object) -> None:
    assert contract.check(loop_with(buckets=value)) == "loop"


def test_members_may_come_from_a_wrapper() -> None:
    class Wrapper:
        def __init__(self, inner: object) -> None:
            self._inner = inner

        def __getattr__(self, name: str) -> object:
            return getattr(self._inner, name)

    assert contract.check(Wrapper(Engine())) == "engine"


def test_a_module_is_a_loop_target() -> None:
    class Model(torch.nn.Module):
        buckets = (1,)

        def next_inputs(self, step: int, n: int) -> object:
            return None

        def forward(self, inputs: object) -> object:
            return inputs

        def reset(self) -> None:
            pass

    assert contract.check(Model()) == "loop"


def test_both_forms_are_refused() -> None:
    assert "all members of a LoopTarget and all of an EngineTarget" in refusal(type("Both", (Loop, Engine), {})())


def test_neither_form_shows_both() -> None:
    said = refusal(object())
    assert "no member of a LoopTarget or an EngineTarget" in said
    assert "def next_inputs(self, step: int, n: int) -> pytree" in said
    assert "def graphs(self, on: bool) -> None" in said


def test_only_reset_belongs_to_either() -> None:
    assert "is no target" in refusal(type("Mine", (), {"reset": lambda self: None})())


def test_missing_members_are_named_with_their_signature() -> None:
    said = refusal(engine_with(graphs=None))
    assert "no complete EngineTarget: it lacks graphs." in said
    assert "Add `def graphs(self, on: bool) -> None`." in said


def test_a_slip_in_a_required_name() -> None:
    said = refusal(loop_with(next_inputs=None, next_input=Loop.next_inputs))
    assert 'it lacks next_inputs. Is its "next_input" meant as "next_inputs"?' in said


def test_a_slip_in_an_optional_name_is_told() -> None:
    target = loop_with(static_input=lambda self, bucket: None, states=[1], helper=lambda self: None)
    [sentence] = contract.misspelt(target, "loop")
    assert 'Mine.static_input is no member of the contract and is ignored. Did you mean "static_inputs"?' in sentence
    assert not contract.misspelt(Loop(), "loop")


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"next_inputs": lambda self, step: None}, "next_inputs(step) cannot be called with (step, n): too many"),
        ({"next_inputs": lambda self, n, step: None}, "takes its arguments in another order: (n, step)"),
        ({"forward": lambda self, *, inputs: None}, "forward(*, inputs) cannot be called with (inputs)"),
        ({"forward": 3}, "forward is a int, not a method"),
        ({"reset": lambda self, hard: None}, "missing a required argument: 'hard'"),
        ({"prepare": lambda self, static, fresh: None}, "prepare(static, fresh) cannot be called"),
        ({"state": {"cache": 1}}, "state is a dict, not a method"),
        ({"pipelined": lambda self: True}, "pipelined is a method"),
    ],
)
def test_wrong_members(members: dict[str, object], said: str) -> None:
    message = refusal(loop_with(**members))
    assert said in message
    assert "def " in message or "attribute" in message  # the signature expected


@pytest.mark.parametrize(
    "members",
    [
        {"next_inputs": lambda self, *args: None},
        {"next_inputs": lambda self, step, n, extra=0: None},
        {"next_inputs": lambda self, k, rows: None},
        {"forward": torch.nn.Identity()},
        {"static_inputs": None},
        {"generators": ()},
    ],
)
def test_what_fits(members: dict[str, object]) -> None:
    assert contract.check(loop_with(**members)) == "loop"


def test_asynchronous_and_generator_methods() -> None:
    async def step(self: object, i: int, n: int) -> None:
        pass

    def stream(self: object, i: int, n: int) -> Iterator[int]:
        yield 1

    assert "is asynchronous" in refusal(engine_with(step=step))
    assert "is a generator" in refusal(engine_with(step=stream))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([], "is empty"),
        ([4, 2], "are not ascending"),
        ([1, 2, 2], "hold a size twice"),
        ([0, 1], "below 1"),
        ([1.0, 2.0], "no integer"),
        ([True, 2], "no integer"),
        ("124", "no list of integers"),
        (4, "no list of integers"),
        ({1, 2}, "no list of integers"),
        ({1: "graph"}, "no list of integers"),
        (torch.tensor([[1, 2]]), "no integer"),
        (lambda self: [1, 2], "is a method"),
    ],
)
def test_buckets_that_are_none(value: object, said: str) -> None:
    message = refusal(loop_with(buckets=value))
    assert "Mine.buckets" in message
    assert said in message


def test_a_generator_of_buckets() -> None:
    assert "used up at the first reading" in refusal(loop_with(buckets=property(lambda self: (b for b in (1, 2)))))


def test_batch_sizes_of_an_engine() -> None:
    assert contract.check(engine_with(batch_sizes=[4, 1, 1])) == "engine"  # an order to play, not a set
    assert "batch_sizes holds a size below 1" in refusal(engine_with(batch_sizes=[0]))


def test_a_property_that_raises_is_not_missing() -> None:
    class Mine(Loop):
        @property
        def buckets(self) -> list[int]:
            return self.not_there  # type: ignore[attr-defined, no-any-return]

    said = refusal(Mine())
    assert "Reading Mine.buckets raised an exception." in said
    assert "not_there" in said
