"""Medians, and the table of costs that a measurement makes."""

from __future__ import annotations

from cudagraph_doctor.audit.costs import CostTable
from cudagraph_doctor.measuring.model import Measured, Measurement, Timing, costs

TIMING = Timing.of([3.0, 1.0, 2.0, 10.0, 2.0])


def test_an_outlier_moves_no_median() -> None:
    assert Timing(2.0, 2.0, 3.0, 5) == TIMING


def test_the_table_holds_what_was_timed() -> None:
    eager = Timing.of([4.0, 4.0])
    key = Measured(4, 4, 3, nodes=9, capture_ms=1.0, instantiate_ms=0.5, replay=TIMING, padded=TIMING, eager=eager)
    found = costs(Measurement("loop", (Measured(2, 2, 2), key), 4), "here")
    assert found is not None and CostTable.from_json(found.to_json()) == found
    [row] = found.keys
    assert (row.size, row.replay_ms, row.eager_ms, row.padded_rows, row.padded_ms) == (4, 2.0, 4.0, 3, 2.0)
    assert (row.graph_bytes, row.nodes, found.origin) == (None, 9, "measured: here")


def test_without_times_there_is_no_table() -> None:
    assert costs(Measurement("engine", (Measured(2, 2, 2),), 2), "here") is None
