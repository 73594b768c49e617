"""Values kept in the dry run and given again."""

from __future__ import annotations

import pytest
import torch

from cudagraph_doctor.observation.values import Kept


def test_a_result_is_copied_when_kept_and_when_given() -> None:
    kept, result = Kept(), torch.zeros(2)
    kept.keep("a", (result, [1, {"x": result}], "text"))
    result.fill_(7)
    first = kept.give("a")
    assert first[0].tolist() == [0, 0] and first[2] == "text" and isinstance(first[1], list)
    first[0].fill_(8)
    assert kept.give("a")[1][1]["x"].tolist() == [0, 0]
    assert "a" in kept and "b" not in kept
    with pytest.raises(KeyError):
        kept.give("b")


def test_what_was_written_is_written_again_and_handed_back_itself() -> None:
    kept, target = Kept(), torch.ones(2)
    kept.keep("a", target, [target])
    target.zero_()
    assert kept.give("a", [target]) is target and target.tolist() == [1, 1]


def test_a_tensor_of_another_shape_is_left_alone() -> None:
    kept = Kept()
    kept.keep("a", None, [torch.ones(2)])
    other = torch.zeros(3)
    assert kept.give("a", [other]) is None and other.tolist() == [0, 0, 0]


def test_a_leaf_that_wants_gradients() -> None:
    kept, weight = Kept(), torch.ones(2, requires_grad=True)
    kept.keep("a", weight, [weight])
    assert kept.give("a", [weight]) is weight and kept.give("a", [weight]).is_leaf
