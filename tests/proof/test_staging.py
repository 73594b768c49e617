"""What the doctor stages where a target leaves it to the doctor; whole steps of it are tested in `test_loop.py`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from cudagraph_doctor.errors import TargetError
from cudagraph_doctor.proof.staging import Staging, default_update


def test_the_default_update_copies_into_the_leading_part_and_the_last_row_behind_it() -> None:
    static: dict[str, Any] = {"x": torch.zeros(4, 3), "slots": torch.full((4,), -1), "n": 1}
    default_update(static, {"x": torch.ones(2, 2), "slots": torch.arange(3), "n": 2})
    assert static["x"].tolist() == [[1, 1, 0]] * 4
    assert static["slots"].tolist() == [0, 1, 2, 2]
    default_update(static, {"x": torch.ones(0, 2), "slots": torch.arange(0)})
    assert static["slots"].tolist() == [0, 1, 2, 2]
    scalar = {"x": torch.tensor(1.0)}
    default_update(scalar, {"x": torch.tensor(2.0)})
    assert scalar["x"].item() == 2


def test_the_default_update_puts_back_the_padding_that_was_given() -> None:
    static = {"slots": torch.tensor([5, 6, 7, 8])}
    default_update(static, {"slots": torch.arange(2)}, {"slots": torch.full((4,), -1)})
    assert static["slots"].tolist() == [0, 1, -1, -1]
    default_update(static, {"slots": torch.arange(0)}, {"slots": torch.full((4,), -1)})
    assert static["slots"].tolist() == [-1] * 4


@pytest.mark.parametrize(
    ("fresh", "message"),
    [
        ({"y": torch.ones(1)}, "no tensor `y`"),
        ({"x": torch.ones(5)}, "`x` does not fit"),
        ({"x": torch.ones(1, 1)}, "`x` does not fit"),
    ],
)
def test_the_default_update_refuses_what_does_not_fit(fresh: dict[str, Any], message: str) -> None:
    with pytest.raises(TargetError, match=message) as caught:
        default_update({"x": torch.zeros(4)}, fresh)
    assert "update(static, fresh)" in caught.value.fix


def test_members_of_the_target_go_before_ours() -> None:
    told: list[Any] = []
    target = SimpleNamespace(
        static_inputs=lambda bucket: {"x": torch.full((bucket,), -1)},
        prepare=lambda static, fresh, bucket, capturing: told.append((bucket, capturing)),
        update=lambda static, fresh: told.append(fresh),
    )
    staging = Staging(target, lambda step, n: {"x": torch.ones(n)}, "cpu")
    static = staging.static(3)
    assert static["x"].tolist() == [-1] * 3 and staging.has("update") and not staging.has("warmup")
    staging.stage(static, "fresh", 3, capturing=True)
    assert told == [(3, True), "fresh"]
    target.update = None
    staging.remember(3, static)
    staging.stage(static, {"x": torch.zeros(2)}, 3, capturing=False)
    assert static["x"].tolist() == [0, 0, -1]
