"""Row numbers in words."""

from __future__ import annotations

import pytest

from cudagraph_doctor.proof.ranges import numbered


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ([7], "row 7"),
        ([0, 1, 2, 5], "rows 0 to 2, 5"),
        (list(range(0, 14, 2)), "rows 0, 2, 4, 6, 8, 10, ..."),
    ],
)
def test_rows_in_words(numbers: list[int], text: str) -> None:
    assert numbered("row", numbers) == text
