"""Outputs made of whole numbers alone are exact; what has met a fraction, a lottery or an unseen writer is not."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pytest
import torch

from cudagraph_doctor.proof.arms import Arms
from cudagraph_doctor.proof.exact import exact_outputs
from cudagraph_doctor.proof.subject import Planned

Inputs = dict[str, torch.Tensor]
Make = Callable[..., Any]
MakeArms = Callable[..., tuple[Arms, list[Planned]]]
Step = Callable[[Any, Inputs], Any]


@pytest.fixture
def exact(loop_target: Make, arms_of: MakeArms) -> Callable[..., frozenset[str]]:
    """The exact outputs of a step, which may use a few tensors of the target."""

    def asked(forward: Step, **members: Any) -> frozenset[str]:
        arms, plan = arms_of(loop_target(forward=forward, **members), 2, 2)
        arms.save()
        return exact_outputs(arms, plan[0])

    return asked


def test_counts_are_exact_beside_what_is_rounded(exact: Callable[..., frozenset[str]]) -> None:
    def forward(self: Any, inputs: Inputs) -> Inputs:
        return {
            "positions": inputs["x"] + 134,
            "slots": inputs["slots"].clone(),
            "logits": inputs["x"] / 3,
            "token": (inputs["x"] / 3).argmax(-1, keepdim=True),
            "rounded": (inputs["x"] / 3).round(),
        }

    assert exact(forward) == {"positions", "slots"}


def test_sums_and_products_of_small_whole_numbers(exact: Callable[..., frozenset[str]]) -> None:
    def forward(self: Any, inputs: Inputs) -> Inputs:
        self.cache.index_add_(0, inputs["slots"], inputs["x"][:, None].expand(-1, 2))
        small = inputs["x"][:, None] @ self.weight[None]
        return {"product": small, "sum": small.sum(-1), "state": self.cache[inputs["slots"]], "large": small * 2**23}

    assert exact(forward) == {"product", "sum", "state"}


def test_products_of_numbers_that_tf32_rounds_are_not(exact: Callable[..., frozenset[str]]) -> None:
    def forward(self: Any, inputs: Inputs) -> Inputs:
        return {"y": (inputs["x"][:, None] + 2048) @ self.weight[None], "one": inputs["x"] + 2048}

    assert exact(forward) == {"one"}


@pytest.mark.parametrize(
    "made",
    [
        lambda x: x * 0.5 + x * 0.5,
        lambda x: torch.bernoulli(torch.ones_like(x)),
        lambda x: torch.empty_like(x).copy_(x / 3).mul_(0),
        lambda x: x.cumsum(0) + 2.0**24,
        lambda x: x * float("nan"),
        lambda x: x + (x / 3).sum().item() // 1000,
        lambda x: torch.zeros(2, dtype=torch.complex64, device=x.device) + x,
    ],
    ids=["fractions", "lottery", "fractions in place", "too large", "NaN", "by the host", "complex"],
)
def test_what_nobody_vouches_for(
    exact: Callable[..., frozenset[str]], loop_target: Make, made: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    def forward(self: Any, inputs: Inputs) -> Inputs:
        capturing = torch.cuda.is_current_stream_capturing()
        return {"y": inputs["x"] + 0 if capturing else made(inputs["x"])}

    assert exact(forward) == frozenset()


def test_memory_that_is_overwritten_as_a_whole(exact: Callable[..., frozenset[str]]) -> None:
    def forward(self: Any, inputs: Inputs) -> Inputs:
        whole, part = torch.empty_like(inputs["x"]), torch.empty_like(inputs["x"])
        whole.copy_(inputs["x"])
        part[:1].copy_(inputs["x"][:1])
        part[1:].copy_(inputs["x"][1:])
        return {"whole": whole, "part": part}

    assert exact(forward) == {"whole"}, "of a part nobody knows whether the rest was written"


def count_by_address(tensor: torch.Tensor) -> None:
    """Add one to the first number, float32, unseen by torch."""
    if not tensor.is_cuda:
        ctypes.c_float.from_address(tensor.data_ptr()).value += 1
        return
    from cuda.bindings import runtime

    number = ctypes.c_float()
    torch.cuda.synchronize()
    for to, source in (ctypes.addressof(number), tensor.data_ptr()), (tensor.data_ptr(), ctypes.addressof(number)):
        (error,) = runtime.cudaMemcpy(to, source, 4, runtime.cudaMemcpyKind.cudaMemcpyDefault)
        assert error == runtime.cudaError_t.cudaSuccess
        number.value += 1


@pytest.mark.parametrize("hidden", ["cache", "made"])
def test_a_write_that_no_operator_made(exact: Callable[..., frozenset[str]], hidden: str) -> None:
    def forward(self: Any, inputs: Inputs) -> Inputs:
        made = inputs["x"] + 0
        written = {"cache": self.cache, "made": made}[hidden]
        if not torch.cuda.is_current_stream_capturing():
            count_by_address(written)
        return {"cache": self.cache[:2] + 0, "made": made, "x": inputs["x"] + 0}

    assert exact(forward) == {"cache", "made", "x"} - {hidden}


def test_large_storages_are_left_to_others(exact: Callable[..., frozenset[str]], backend: Any) -> None:
    def forward(self: Any, inputs: Inputs) -> Inputs:
        return {"y": self.table[inputs["slots"]] + 0, "x": inputs["x"] + 0}

    large = torch.zeros(1 << 18 | 1, device=backend.device)
    assert exact(forward, table=large) == {"x"}


def test_a_step_that_cannot_be_watched_is_said(loop_target: Make, arms_of: MakeArms) -> None:
    def forward(self: Any, inputs: Inputs) -> Inputs:
        if self.watched and torch.utils._python_dispatch._get_current_dispatch_mode() is not None:
            raise RuntimeError("no modes here")
        return {"y": inputs["x"] + 0}

    target = loop_target(forward=forward, watched=False)
    arms, plan = arms_of(target, 2, 2)
    arms.save()
    target.watched = True
    assert exact_outputs(arms, plan[0]) == frozenset()
    assert any("no modes here" in sentence for sentence in arms.subject.not_checked)
