"""The terminal's view of a measurement: what is not known has no column."""

from __future__ import annotations

from dataclasses import replace

from rich.console import Console

from cudagraph_doctor.measuring.model import Measured, Measurement, Pools, Switching, Timing
from cudagraph_doctor.report import audit_measured

TIMING = Timing(1.25, 1.2, 1.3, 11)
KEY = Measured(8, 8, 5, 1, 420, 40.0, 6.0, TIMING, TIMING, Timing(4.0, 3.9, 4.1, 11), 8 << 20, 16 << 20)


def shown(measurement: Measurement | None) -> str:
    console = Console(width=120, record=True, file=None)
    with console.capture() as captured:
        for part in audit_measured.tables(measurement.to_json() if measurement else None):
            console.print(part)
    return captured.get()


def test_all_numbers() -> None:
    text = shown(Measurement("loop", (KEY,), 8, Pools(32 << 20, 1, 40 << 20), (), Switching(3, 12)))
    assert "Measured: 1 key of a target (loop), compared with eager." in text
    assert "key  nodes  capture ms  instantiate ms  replay ms  padded ms  eager ms  graph  pool alone" in text
    assert "8    420          40               6       1.25   1.25 (5)         4  8 MiB      16 MiB" in text
    assert "Pools as captured: 32 MiB in 1 pool; one pool, the smallest key first: 40 MiB." in text
    assert "Switching: 12 replays in 3 random orders of the keys." in text


def test_what_is_not_known_has_no_column() -> None:
    key = replace(KEY, graph_bytes=None, pool_bytes=None, padded=None)
    text = shown(Measurement("engine", (key,), 8, Pools(32 << 20, 5)))
    assert "pool alone" not in text and "padded" not in text and "in 5 pools." in text
    emulated = Measurement("loop", (Measured(8, 8, 5, 1, 420),), 8)
    assert "replay ms" not in shown(emulated) and "Played, and not timed: 1 key" in shown(emulated)


def test_without_a_measurement() -> None:
    assert shown(None) == ""
