"""The judge of dumps: on made-up ones, and on recorded ones (see tests/record_captures.py)."""

from __future__ import annotations

import gzip
import json
import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from cudagraph_doctor.graph.model import GraphNode, NodeKind, Param
from cudagraph_doctor.replays.baked import Judged, judge, weak_keys
from cudagraph_doctor.replays.candidates import Candidate, Kind
from cudagraph_doctor.replays.model import Dump
from cudagraph_doctor.replays.plain import from_plain

RECORDED = Path(__file__).parents[1] / "data" / "captures"
INPUTS = ((1, 4), (2, 4), (3, 4), (1, 3))
Made = Callable[[int, int, int], list[GraphNode]]
"""(step, rows, number of the capture) -> nodes."""


def kernel(name: str, *data: bytes, grid: int = 4) -> GraphNode:
    params = tuple(Param(index, "", 8 * index, one) for index, one in enumerate(data))
    return GraphNode(0, NodeKind.KERNEL, name, (grid, 1, 1), (128, 1, 1), 0, params)


def numbered(nodes: Sequence[GraphNode]) -> tuple[GraphNode, ...]:
    return tuple(replace(node, index=index) for index, node in enumerate(nodes))


def captured(made: Made, key: str = "4", times: int = 5) -> list[Dump]:
    order = [at for _ in range(times) for at in INPUTS]
    return [
        Dump(number, step, rows, key, numbered(made(step, rows, number)), host={"length": 14 + step, "n": rows})
        for number, (step, rows) in enumerate(order)
    ]


def integer(value: int) -> bytes:
    return struct.pack("<i", value)


def test_nothing_changes_nothing_is_said() -> None:
    assert judge(captured(lambda step, rows, number: [kernel("mm", integer(3))])) == Judged()


def test_a_buckets_upper_bound_never_shows() -> None:
    judged = judge(captured(lambda step, rows, number: [kernel("attend", integer(4096), bytes(8), grid=64)]))
    assert not judged.candidates


def test_a_by_value_length_is_named_by_kernel_parameter_values_and_host_value() -> None:
    (found,) = judge(
        captured(lambda step, rows, number: [kernel("mm"), kernel("scale", bytes(8), integer(14 + step))])
    ).candidates
    assert (found.kind, found.name, found.nodes, found.param) == (Kind.VALUE, "scale", (1,), 1)
    assert found.values == {(1, 4): (15,), (2, 4): (16,), (3, 4): (17,), (1, 3): (15,)}
    assert found.follows == "length" and not found.steady


def test_layers_with_the_same_values_are_one() -> None:
    (found,) = judge(captured(lambda step, rows, number: [kernel("scale", integer(step))] * 61)).candidates
    assert found.nodes == tuple(range(61))


def test_layers_with_other_values_are_several() -> None:
    def made(step: int, rows: int, number: int) -> list[GraphNode]:
        return [kernel("scale", integer(step + 100 * layer)) for layer in range(2)]

    assert len(judge(captured(made)).candidates) == 2


def test_uninitialised_bytes_are_noise() -> None:
    draw = random.Random(0)

    def made(step: int, rows: int, number: int) -> list[GraphNode]:
        # seldom another value, as measured: equal in many captures in a row
        garbage = bytes(draw.choice((0, 0, 0, 0x5A)) for _ in range(600))
        return [kernel("topk", garbage, integer(96))]

    judged = judge(captured(made))
    assert not judged.candidates and judged.noise_bytes > 500


def test_a_number_among_uninitialised_bytes_is_found() -> None:
    draw = random.Random(1)

    def made(step: int, rows: int, number: int) -> list[GraphNode]:
        garbage = bytes(draw.choice((0, 0x5A)) for _ in range(64))
        return [kernel("index", garbage[:32] + integer(14 + step) + garbage[32:])]

    (found,) = judge(captured(made)).candidates
    assert [(part.offset, part.bytes) for part in found.parts] == [(32, 4)] and found.follows == "length"


def test_a_descriptor_is_opaque_though_a_field_reads_as_a_number() -> None:
    def made(step: int, rows: int, number: int) -> list[GraphNode]:
        descriptor = Param(0, "", 48, struct.pack("<QII112x", 0, rows, 512), is_descriptor=True)
        return [replace(kernel("load"), params=(descriptor, Param(1, "", 176, integer(7))))]

    (found,) = judge(captured(made)).candidates
    assert found.kind is Kind.OPAQUE and [(part.offset, part.values) for part in found.parts] == [
        (8, ("04", "04", "04", "03"))
    ]


def test_bytes_that_are_no_descriptor_read_as_the_number() -> None:
    (found,) = judge(
        captured(lambda step, rows, number: [kernel("load", struct.pack("<QII48x", 0, rows, 512))])
    ).candidates
    assert found.kind is Kind.VALUE and found.follows == "n"


def test_the_bits_of_a_clock_are_no_host_counter() -> None:
    clock = [0x383F9DA6 + number * 0x00B3A1C7 for number in range(20)]

    def made(step: int, rows: int, number: int) -> list[GraphNode]:
        return [kernel("topk", struct.pack("<QII", 5, clock[number], 0x1A))]

    assert not judge(captured(made)).candidates


def test_a_counter_that_reset_does_not_restore() -> None:
    (found,) = judge(captured(lambda step, rows, number: [kernel("reduce", integer(40 + number))])).candidates
    assert found.kind is Kind.COUNTER and found.parts[0].values == tuple(range(40, 60))


def test_more_nodes_and_a_parameter_behind_them() -> None:
    def made(step: int, rows: int, number: int) -> list[GraphNode]:
        branch = [kernel("relu")] if step > 2 else []
        return [kernel("mm"), *branch, kernel("scale", integer(step))]

    nodes, value = judge(captured(made)).candidates
    assert (nodes.kind, nodes.name, nodes.steady) == (Kind.NODES, "relu", True)
    assert (value.kind, value.nodes, value.values[(3, 4)]) == (Kind.VALUE, (1,), (3,))


def test_a_grid_that_follows_the_batch() -> None:
    (found,) = judge(captured(lambda step, rows, number: [kernel("attend", grid=rows)])).candidates
    assert (found.kind, found.follows) == (Kind.LAUNCH, "n")


def test_captures_that_do_not_settle_are_left_out_and_told() -> None:
    def made(step: int, rows: int, number: int) -> list[GraphNode]:
        wild = [kernel("autotune")] if step == 3 and number > 10 else []
        return [kernel("scale", integer(step)), *wild]

    judged = judge(captured(made))
    assert judged.unsteady == (("4", (3, 4)),)
    assert [candidate.seen_at for candidate in judged.candidates] == [((1, 4), (2, 4), (1, 3))]


def test_a_key_with_one_capture_is_told() -> None:
    dumps = captured(lambda step, rows, number: [kernel("mm")], times=1)[:1]
    assert judge(dumps).single == ("4",)
    assert judge([]) == Judged()


def test_keys_are_judged_apart() -> None:
    four = captured(lambda step, rows, number: [kernel("mm", integer(4))])
    eight = captured(lambda step, rows, number: [kernel("mm", integer(8))], key="8")
    assert not judge([*four, *eight]).candidates


def test_nodes_that_cannot_be_read_are_passed_over() -> None:
    def made(step: int, rows: int, number: int) -> list[GraphNode]:
        return [GraphNode(0, NodeKind.KERNEL, "packed", unreadable="no layout"), kernel("scale", integer(step))]

    (found,) = judge(captured(made)).candidates
    assert found.nodes == (1,)


# keys


def weak(made: Made) -> list[tuple[tuple[int, int], tuple[int, int], tuple[str, ...], list[str]]]:
    found = weak_keys(judge(captured(made)).candidates)
    return [(one.first, one.other, one.missing, [c.name for c in one.candidates]) for one in found]


def test_a_branch_that_the_key_does_not_tell() -> None:
    assert weak(lambda step, rows, number: [kernel("mm"), *([kernel("relu")] if step > 2 else [])]) == [
        ((1, 4), (3, 4), (), ["relu"])
    ]


def test_a_batch_size_that_the_key_does_not_tell() -> None:
    assert weak(lambda step, rows, number: [kernel("attend", integer(rows))]) == [((1, 4), (1, 3), ("n",), ["attend"])]


def test_no_key_could_hold_what_is_another_value_at_every_step() -> None:
    assert weak(lambda step, rows, number: [kernel("scale", integer(step))]) == []
    assert weak(lambda step, rows, number: [kernel("reduce", integer(number))]) == []


# recorded ones


def recorded(name: str) -> list[Dump]:
    file = RECORDED / f"{name}.json.gz"
    if not file.exists():
        pytest.skip(f"{file.name} was not recorded yet")
    return [from_plain(Dump, dump) for dump in json.loads(gzip.decompress(file.read_bytes()))["dumps"]]


def of_kind(candidates: Sequence[Candidate], *kinds: Kind) -> list[tuple[str, str]]:
    return [(one.name, one.follows) for one in candidates if one.kind in kinds]


def test_nothing_is_said_of_the_sound_step() -> None:
    assert not judge(recorded("emulated_sound")).candidates


def test_all_that_the_faulty_step_bakes_in_is_found() -> None:
    found = judge(recorded("emulated_faulty")).candidates
    assert of_kind(found, Kind.NODES) == [("aten.relu.default", "")]
    assert of_kind(found, Kind.VALUE) == [("aten.mul.Tensor", "longest"), ("aten.add.Tensor", "longest")]
    assert of_kind(found, Kind.COUNTER) == [("aten.mul.Tensor", "rounds"), ("aten.mul.Tensor", "total")]
    assert of_kind(found, Kind.DRAW) == [("aten.mul.Tensor", "")] * 2
    assert len(found) == 7
    assert all(one.location and one.location.file == "tests/record_captures.py" for one in found)
