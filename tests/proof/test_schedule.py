"""The order of batch sizes."""

from __future__ import annotations

import pytest

from cudagraph_doctor.proof.schedule import choose, left_out, schedule, sizes_within


def test_smallest_middle_largest() -> None:
    assert choose([1, 2, 4, 8, 16], exhaustive=False) == [1, 4, 16]
    assert choose([1, 2, 4, 8, 16], exhaustive=True) == [1, 2, 4, 8, 16]
    assert choose([4], exhaustive=False) == [4]


def test_sizes_shrink_and_grow_inside_a_bucket() -> None:
    assert sizes_within(8, below=4) == [8, 7, 5, 8]
    assert sizes_within(2, below=1) == [2, 2, 2, 2]
    assert sizes_within(1, below=0) == [1, 1, 1, 1]


@pytest.mark.parametrize("steps", [1, 3, 4, 8, 9])
def test_every_key_gets_its_steps_and_is_left_and_returned_to(steps: int) -> None:
    order = schedule([1, 4, 16], [1, 2, 4, 8, 16], steps)
    served = [next(b for b in (1, 2, 4, 8, 16) if b >= n) for n in order]
    assert {key: served.count(key) for key in (1, 4, 16)} == {1: steps, 4: steps, 16: steps}
    if steps > 4:
        assert served.index(16, served.index(4)) > 0


def test_no_keys_no_steps() -> None:
    assert schedule([], [], 8) == []


def test_what_a_choice_leaves_out() -> None:
    assert left_out("bucket", [1, 2, 4, 8], [8, 4, None, 1]) == ["bucket 2: use --exhaustive"]
    assert left_out("batch size", [1, 2, 4, 8, 16], {16, 1}) == ["batch sizes 2, 4, 8: use --exhaustive"]
    assert left_out("bucket", [1, 2], [1, 2, 4]) == []
