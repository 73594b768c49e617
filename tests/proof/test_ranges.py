"""Row numbers in words."""

from __future__ import annotations

import pytest

from cudagraph_doctor.proof.ranges import graphs_too, numbered


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


def test_the_other_graphs_of_a_fault_are_counted() -> None:
    assert graphs_too([]) == ""
    assert graphs_too(["graph 4"]) == " The same fault is in graph 4."
    assert graphs_too(["graph 4", "graph 8", "graph 1"]) == " The same fault is in graph 4 and 2 more graphs."
