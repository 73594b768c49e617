"""What is a weight is told by its type, else by what steps do to it: never by being of floating point alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from cudagraph_doctor.proof.arms import Discovery, span
from cudagraph_doctor.proof.extent import Extent
from cudagraph_doctor.proof.weights import is_weight, weight_names
from cudagraph_doctor.walk import Walk, walk

Make = Callable[..., Any]


def extent(tensor: torch.Tensor) -> Extent:
    return Extent(*span(tensor))


def around(**tensors: torch.Tensor) -> Walk:
    return walk({"": tensors})


@pytest.mark.parametrize(
    "tensor", [torch.nn.Parameter(torch.ones(2), requires_grad=False), torch.ones(2, requires_grad=True)]
)
def test_a_parameter_is_one_whatever_steps_do(tensor: torch.Tensor) -> None:
    found = Discovery(state={extent(tensor)}, replaced={"w": 9})
    assert is_weight(found, around(w=tensor), "w", tensor)


def test_what_steps_leave_alone_is_one_if_it_is_of_floating_point() -> None:
    table, index, number = torch.ones(2), torch.ones(2, dtype=torch.int64), torch.tensor(1.0)
    seen = around(table=table, index=index, number=number)
    assert [is_weight(Discovery(), seen, name, t) for name, t in seen.tensors.items()] == [True, False, False]


def test_what_a_step_writes_is_none() -> None:
    cache = torch.ones(4)
    seen = around(cache=cache, part=cache[:2])
    assert not is_weight(Discovery(state={extent(cache)}), seen, "part", cache[:2])
    assert not is_weight(Discovery(touched={extent(cache[3:])}), seen, "cache", cache)
    assert is_weight(Discovery(touched={extent(cache[3:])}), seen, "part", cache[:2])


def test_an_update_is_none_of_the_steps_business_but_what_each_step_replaces_is() -> None:
    tensor = torch.ones(2)
    seen = around(plain=tensor, alias=tensor)
    assert is_weight(Discovery(replaced={"plain": 1}), seen, "plain", tensor)
    assert not is_weight(Discovery(replaced={"plain": 2}), seen, "plain", tensor)
    assert not is_weight(Discovery(replaced={"alias": 2}), seen, "plain", tensor), "under whichever name"
    assert not is_weight(Discovery(replaced={"plain": 2}), seen, "alias", tensor)


def test_names_of_a_target(loop_target: Make, arms_of: Make) -> None:
    target = loop_target()
    target.frozen = torch.nn.Parameter(torch.zeros(2, device=target.device))
    target.scale = torch.ones(2, device=target.device)
    plain = target.forward

    def forward(inputs: Any) -> Any:
        target.scale = inputs["x"][:1].clone()
        return {"y": plain(inputs)["y"] * target.scale}

    target.forward = forward
    arms, _ = arms_of(target, 4, 3, 1, 4)
    assert weight_names(arms) == {"weight", "frozen"}
    assert arms.found.replaced["scale"] > 1 and "weight" not in arms.found.replaced
