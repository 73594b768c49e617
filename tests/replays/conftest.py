"""A made-up history, small and whole: what the store, the matrix and the scripts are tested with."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import replace

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

STAGED = Location("serve.py", 31, "stage", "slots[:n].copy_(fresh.slots)")
LAUNCHED = Location("model.py", 12, "forward", "return x * scale")
SHOWN = Measured(5, 5, 0, 5, "tokens: 3 of 4")


def ints(*values: int) -> Content:
    """(n,) int32."""
    data = struct.pack(f"<{len(values)}i", *values)
    shown = hashlib.sha256(data).hexdigest()[:16]
    return Content(len(data), shown, "int32", (len(values),), min(values), max(values), data)


def large(name: str, high: float) -> Content:
    """A cache whose bytes are not kept."""
    return Content(
        1 << 20, hashlib.sha256(f"{name} {high}".encode()).hexdigest()[:16], "bfloat16", (512, 1024), -1, high
    )


def node(scale: float) -> GraphNode:
    """A kernel with a pointer and a number."""
    pointer = Pointer(0, 0x7000, Named("input", "slots", 0))
    params = (
        Param(0, "slots", 0, struct.pack("<Q", 0x7000), (pointer,)),
        Param(1, "scale", 8, struct.pack("<f", scale), value=scale),
    )
    origin = Origin(LAUNCHED, "layers.0", "aten.mul.Tensor")
    return GraphNode(0, NodeKind.KERNEL, "scale_rows", (4, 1, 1), (128, 1, 1), 0, params, origin)


def reading(replay: int, region: int, held: Content, fresh: Content | None, changed: bool | None = None) -> Reading:
    """With `unequal` as it follows from the contents."""
    unequal: tuple[Span, ...] = ()
    if fresh is not None and held.data is not None and fresh.data is not None:
        words = [i for i in range(0, held.size, 4) if held.data[i : i + 4] != fresh.data[i : i + 4]]
        unequal = (Span(min(words), max(words) + 4),) if words else ()
    return Reading(replay, region, held, fresh, unequal=unequal, changed=changed, written=Write(STAGED, replay))


REGIONS = (
    Region(
        0, "input", "slots", 0x7000, 16, "int32", (4,), ("runner.slots",), STAGED, (Reader(0, 0, 0, 0, True, False),)
    ),
    Region(1, "input", "lens", 0x7200, 16, "int32", (4,)),
    Region(2, "input", "rows", 0x7400, 16, "int32", (4,)),
    Region(3, "state", "k_cache", 0x100000, 1 << 20, "bfloat16", (512, 1024)),
    Region(4, "weight", "head.weight", 0x300000, 1 << 20, "bfloat16", (512, 1024)),
)
READINGS = (
    # slots: never refreshed
    reading(0, 0, ints(9, 9, 9, 9), ints(0, 16, 32, 48)),
    reading(1, 0, ints(9, 9, 9, 9), ints(1, 17, 33, -1), changed=False),
    reading(2, 0, ints(9, 9, 9, 9), ints(2, 18, 34, 50), changed=False),
    # lens: right in its live rows; the tail is stale after the batch has shrunk
    reading(0, 1, ints(4, 5, 6, 7), ints(4, 5, 6, 7)),
    reading(1, 1, ints(5, 6, 7, 7), ints(5, 6, 7, 0), changed=True),
    reading(2, 1, ints(6, 7, 8, 9), ints(6, 7, 8, 9), changed=True),
    # rows: constant by right
    *(
        reading(replay, 2, ints(0, 1, 2, 3), ints(0, 1, 2, 3), changed=None if replay == 0 else False)
        for replay in range(3)
    ),
    # k_cache: changes by right; nothing is known of it at the first step
    reading(0, 3, large("k", 1), None),
    reading(1, 3, large("k", 2), large("k", 2), changed=True),
    reading(2, 3, large("k", 3), large("k", 3), changed=True),
    # head.weight: the live one is elsewhere
    replace(
        reading(2, 4, large("w", 1), large("w", 9), changed=False),
        live=large("w", 9),
        live_address=0x900000,
        alive=False,
    ),
)

HISTORY = History(
    run=Run("serve.py:target", "loop", "cuda", "2.11.0", "NVIDIA H200", 7, {"preset": "tiny"}),
    graphs=(Graph(0, "4", STAGED, (node(5.0),), "0.1", {"memory operations": 2}),),
    regions=REGIONS,
    replays=(
        Replay(0, 0, 4, "4", (0,), SHOWN, Measured(0, 5, 0, 5)),
        Replay(1, 1, 3, "4", (0,), SHOWN, None, 2),
        Replay(2, 2, 4, "4", (0,), SHOWN),
    ),
    readings=READINGS,
    dumps=(Dump(0, 0, 4, "4", (node(5.0),)), Dump(1, 1, 4, "4", (node(6.0),), host={"self.round": 3})),
    flags=(
        Flag(
            code="CGD301",
            replay=0,
            region=0,
            name="slots",
            where="4 of 4 rows",
            held=[9, 9, 9, 9],
            expected=[0, 16, 32, 48],
            evidence={"n": 5, "row_values": [9]},
        ),
        Flag("CGD320", 0, place=Place(0, 0, 1, 0, 4), name="scale_rows, parameter 1 (scale)", held=5.0, expected=6.0),
        Flag("CGD308", 2, 4, name="head.weight"),
    ),
    trials=(Trial(0, (0,), True, 16), Trial(2, (2,), False, 1 << 20, "logits: 3 of 4 rows")),
    not_checked=("kernels that could not be read",),
    counts={"regions": 5, "unnamed": 1},
)


@pytest.fixture
def made_up() -> History:
    """A run of three replays with a fault, two, and what is right."""
    return HISTORY
