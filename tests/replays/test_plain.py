"""JSON both ways, for all that a history holds."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from cudagraph_doctor.findings import Location
from cudagraph_doctor.graph.model import GraphNode, NodeKind, Origin, Param, Pointer
from cudagraph_doctor.graph.model import Region as Named
from cudagraph_doctor.replays.model import (
    Content,
    Dump,
    Flag,
    Graph,
    History,
    Measured,
    Place,
    Reader,
    Reading,
    Region,
    Replay,
    Run,
    Span,
    Trial,
    Write,
)
from cudagraph_doctor.replays.plain import from_plain, to_plain

LINE = Location("serve.py", 12, "stage", "slots.copy_(fresh)")
NODE = GraphNode(
    0,
    NodeKind.KERNEL,
    "scale",
    (4, 1, 1),
    (128, 1, 1),
    0,
    (
        Param(0, "x", 0, bytes(range(8)), (Pointer(0, 0x0706050403020100, Named("input", "slots", 0)),)),
        Param(1, "scale", 8, b"\x00\x00\xa0\x40", value=5.0),
    ),
    Origin(LINE, "layers.0", "aten.mul.Tensor"),
)
HISTORY = History(
    Run("serve.py:target", "loop", "cuda", "2.11.0", "NVIDIA H200", 7, {"preset": "tiny"}),
    (Graph(0, "4", LINE, (NODE,), "0.1", {"memory operations": 2}),),
    (Region(0, "input", "slots", 0x7000, 32, "int64", (4,), ("runner.slots",), LINE, (Reader(0, 0, 0, 8, True),)),),
    (Replay(0, 3, 3, "4", (0,), Measured(5, 5, 0, 5, "tokens: 3 of 4"), Measured(5, 5, 0, 5), 4),),
    (
        Reading(
            0,
            0,
            Content(32, "00ff", "int64", (4,), -1, 9, bytes(32)),
            Content(32, "01ff", "float32", (8,), math.nan, math.inf),
            None,
            0x8000,
            (Span(0, 8),),
            False,
            Write(LINE, None),
            alive=False,
        ),
    ),
    (Dump(0, 3, 3, "4", (NODE,), 1, 2, {"runner.round": 3, "mode": "decode"}, {"runner.round": 4}),),
    (Flag("CGD320", 0, None, Place(0, 0, 1, 0, 4), "scale, parameter 1", "parameter", "", 5.0, 6.0, {"control": 0}),),
    (Trial(0, (0,), True, 4),),
    ("what a table of pointers leads to",),
    {"regions": 1},
)


def there_and_back(value: Any) -> Any:
    return from_plain(type(value), json.loads(json.dumps(to_plain(value), allow_nan=False)))


def test_a_history_comes_back_as_it_was() -> None:
    back = there_and_back(HISTORY)
    expected = back.readings[0].expected
    assert math.isnan(expected.low) and expected.high == math.inf
    assert to_plain(back) == to_plain(HISTORY)
    assert back.dumps == HISTORY.dumps and back.graphs == HISTORY.graphs and back.trials == HISTORY.trials


def test_every_field_is_part_of_what_was_tried() -> None:
    # a field that has its default is left out: the example above has to leave out nearly none
    flat = json.dumps(to_plain(HISTORY))
    for field in ("aliases", "live_address", "written", "alive", "moved_on", "host", "harm_step", "not_read", "value"):
        assert f'"{field}"' in flat


def test_false_is_not_taken_for_zero() -> None:
    assert there_and_back(Param(0, "flag", 0, b"", value=False)).value is False
    assert to_plain(Param(0, "n", 0, b"", value=0))["value"] == 0


def test_what_is_no_history_is_refused() -> None:
    unknown = {"target": "x", "form": "loop", "backend": "cuda", "colour": "red"}
    nothing: dict[str, Any] = {}
    for wrong in ({"run": nothing}, {"run": unknown}, nothing):
        with pytest.raises((KeyError, TypeError)):
            from_plain(History, wrong)
    with pytest.raises(ValueError):
        from_plain(Content, {"size": 1, "hash": "00", "data": "no hexadecimal"})


def test_the_model_needs_no_torch() -> None:
    source = Path(__file__).parents[2] / "cudagraph_doctor" / "replays"
    assert all("import torch" not in (source / name).read_text() for name in ("model.py", "plain.py"))
