"""What is learnt from an operator's schema and tags."""

from __future__ import annotations

import pytest
import torch

from cudagraph_doctor.graph.model import NodeKind
from cudagraph_doctor.graph.operators import Role, learn

aten = torch.ops.aten


def test_an_ordinary_operator() -> None:
    add = learn(aten.add.Tensor)
    assert (add.name, add.base, add.arguments) == ("aten.add.Tensor", "aten::add", ("self", "other", "alpha"))
    assert add.role is Role.ORDINARY and add.kind is NodeKind.KERNEL
    assert add.launches and add.torchs and not (add.written or add.random or add.takes_device or add.composite)


def test_what_is_written() -> None:
    assert learn(aten.add_.Tensor).written == ((0, "self"),)
    assert learn(aten.add.out).written == ((3, "out"),)
    assert learn(aten._foreach_add_.Scalar).written == ((0, "self"),)


@pytest.mark.parametrize("view", [aten.view.default, aten.split.Tensor, aten.select.int, aten.detach.default])
def test_views_launch_nothing(view: torch._ops.OpOverload) -> None:
    assert not learn(view).launches


@pytest.mark.parametrize("empty", [aten.empty.memory_format, aten.empty_like.default, aten.new_empty.default])
def test_bare_allocations_launch_nothing(empty: torch._ops.OpOverload) -> None:
    assert not learn(empty).launches


@pytest.mark.parametrize(
    "reads", [aten._local_scalar_dense.default, aten.nonzero.default, aten.equal.default, aten._unique2.default]
)
def test_operators_that_the_host_waits_for(reads: torch._ops.OpOverload) -> None:
    assert learn(reads).role is Role.HOST_READ


def test_roles_that_have_to_be_known_by_name() -> None:
    assert learn(aten._to_copy.default).role is learn(aten.copy_.default).role is Role.COPY
    assert learn(aten.index.Tensor).role is learn(aten.index_put_.default).role is Role.INDEX


def test_kinds_as_cuda_has_them() -> None:
    assert learn(aten.clone.default).kind is NodeKind.MEMCPY
    assert learn(aten.zero_.default).kind is NodeKind.MEMSET


def test_random_operators() -> None:
    assert learn(aten.rand.default).random and not learn(aten.rand.default).takes_generator
    assert learn(aten.uniform_.default).random and learn(aten.uniform_.default).takes_generator


def test_composite_operators_are_made_of_others() -> None:
    assert learn(aten.linear.default).composite and not learn(aten.addmm.default).composite


def test_arguments_by_name_or_position() -> None:
    copy = learn(aten.copy_.default)
    assert copy.argument("non_blocking", (1, 2, True), {}) is True
    assert copy.argument("non_blocking", (1, 2), {"non_blocking": False}) is False
    assert copy.argument("non_blocking", (1, 2), {}) is None and copy.argument("nothing", (1, 2, 3), {}) is None


def test_an_operator_without_a_schema() -> None:
    unknown = learn(len)
    assert unknown.launches and not unknown.torchs and unknown.arguments == () and unknown.written == ()


def test_custom_operators_are_not_torchs() -> None:
    @torch.library.custom_op("cudagraph_doctor_tests::learnt", mutates_args={"x"})
    def learnt(x: torch.Tensor, n: int) -> None:
        x.add_(n)

    found = learn(torch.ops.cudagraph_doctor_tests.learnt.default)
    assert not found.torchs and found.written == ((0, "x"),) and found.arguments == ("x", "n")
