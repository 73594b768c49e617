"""Where two eager runs of different batch sizes part, and by how much."""

from __future__ import annotations

import pytest
import torch

from cudagraph_doctor.proof.shape import Outputs, Seen, parts_by_rounding


def seen(*values: float, rows: int, padding: float = 7.0, operator: str = "add") -> Seen:
    """An operator's output of `rows` rows: the values, and padding behind them."""
    return Seen(operator, {"": torch.tensor([*values, *[padding] * (rows - len(values))])})


EXACT = [seen(1.0, 2.0, rows=2), seen(3.0, 4.0, rows=2)]


@pytest.mark.parametrize(
    ("wide", "rounding"),
    [
        ([seen(1.0, 2.0, rows=4), seen(3.00001, 4.0, rows=4)], True),
        ([seen(1.00001, 2.0, rows=4), seen(-3.0, 4.0, rows=4)], True),  # what follows from it may be large
        ([seen(1.0, 2.0, rows=4), seen(-3.0, 4.0, rows=4)], False),
        ([seen(1.0, 2.0, rows=4), seen(3.0, 4.0, rows=4)], False),  # they do not part
        ([seen(1.0, 2.0, rows=4)], False),
        ([seen(1.0, 2.0, rows=4), seen(3.00001, 4.0, rows=4, operator="mul")], False),
    ],
)
def test_the_first_operator_that_differs_decides(wide: list[Seen], rounding: bool) -> None:
    assert parts_by_rounding(EXACT, wide, rows=2, size=4) is rounding


def test_integers_that_differ_are_no_rounding() -> None:
    exact, wide = Seen("argmax", {"": torch.tensor([1, 2])}), Seen("argmax", {"": torch.tensor([1, 3, 0, 0])})
    assert not parts_by_rounding([exact], [wide], rows=2, size=4)


def test_rows_are_found_in_any_dimension_and_other_shapes_left_out() -> None:
    heads = torch.arange(6.0).view(3, 2)
    padded = torch.cat([heads, heads], dim=1)
    exact = [Seen("t", {"": heads}), Seen("arange", {"": torch.arange(5)}), Seen("sum", {"": torch.ones(2)})]
    wide = [Seen("t", {"": padded}), Seen("arange", {"": torch.arange(9)}), Seen("sum", {"": torch.ones(4) + 1e-6})]
    assert parts_by_rounding(exact, wide, rows=2, size=4)


def test_outputs_are_kept_as_they_were_and_up_to_a_limit() -> None:
    x = torch.ones(4)
    with Outputs(limit=1 << 10) as outputs:
        x.add_(1)
        x.add_(1)
    assert outputs.complete and [s.outputs[""].tolist() for s in outputs.seen] == [[2.0] * 4, [3.0] * 4]
    with Outputs(limit=20) as outputs:
        x.add_(1)
        x.add_(1)
    assert not outputs.complete and len(outputs.seen) == 1
