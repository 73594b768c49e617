"""The judge of dumps on recorded ones (see tests/record_captures.py): all of them, and as few as a check makes.

The recordings do not say where the process had its heap: Python was linked to a fixed address, and from there on up,
below 4 GiB, lie the words of eight bytes that are found in parameters of reductions, copies and cuDNN.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from cudagraph_doctor.replays.baked import Judged, judge, weak_keys
from cudagraph_doctor.replays.candidates import EACH_CAPTURE, Candidate, Kind, input_of
from cudagraph_doctor.replays.model import Dump
from cudagraph_doctor.replays.plain import from_plain

RECORDED = Path(__file__).parents[1] / "data" / "captures"
HEAP = (0x46000000, 0x56000000)
HIGH = (0x7E0000000000, 0x800000000000)
ATTENTION, FUNCTOR = "cudnn_generated_fort_native_sdpa", "vectorized_elementwise_kernel<AUnaryFunctor>"
Told = tuple[Kind, str, int | None, tuple[tuple[int, str], ...]]
"""Kind, first letters of the kernel, parameter, (offset, dtype) of the parts."""
PLANTED: list[Told] = [
    (Kind.LAUNCH, "scale", None, ((0, "grid"),)),
    (Kind.NODES, "vectorized_elementwise_kernel", None, ((0, "nodes"),)),
    (Kind.VALUE, ATTENTION, 0, ((20, "int32"),)),
    (Kind.VALUE, ATTENTION, 4, ((32, "int32"),)),
    (Kind.VALUE, ATTENTION, 7, ((24, "int32"),)),
    (Kind.VALUE, "scale", 2, ((0, "float32"),)),
    (Kind.VALUE, "scale", 3, ((0, "int32"),)),
    (Kind.COUNTER, FUNCTOR, 1, ((4, "float32"),)),
    (Kind.COUNTER, FUNCTOR, 1, ((4, "float32"),)),
    (Kind.DRAW, FUNCTOR, 1, ((4, "float32"),)),
    (Kind.DRAW, FUNCTOR, 1, ((4, "float32"),)),
]


@cache
def recorded(name: str) -> tuple[Dump, ...]:
    plain = json.loads(gzip.decompress((RECORDED / f"{name}.json.gz").read_bytes()))
    return tuple(replace(from_plain(Dump, dump), host_memory=(HEAP, HIGH)) for dump in plain["dumps"])


def fewer(dumps: Sequence[Dump], times: int, seed: int) -> list[Dump]:
    """`times` captures of each input, chosen at random, in their order; all of those with the host moved on."""
    draw = random.Random(seed)
    kept = {dump.ordinal for dump in dumps if dump.moved_on}
    for at in {input_of(dump): None for dump in dumps}:
        kept |= set(draw.sample([d.ordinal for d in dumps if input_of(d) == at and not d.moved_on], times))
    return [dump for dump in dumps if dump.ordinal in kept]


def told(candidates: Sequence[Candidate]) -> list[Told]:
    return [
        (
            one.kind,
            ATTENTION if one.name.startswith(ATTENTION) else one.name,
            one.param,
            tuple((part.offset, part.dtype) for part in one.parts),
        )
        for one in candidates
    ]


def check_planted(judged: Judged) -> None:
    assert told(judged.candidates) == PLANTED
    for one in judged.candidates:
        if one.kind not in EACH_CAPTURE and one.kind is not Kind.NODES:
            values = {at: value for at, (value,) in one.values.items()}
            grid = {1: (4, 1, 1), 2: (5, 1, 1), 3: (5, 1, 1)}
            right: Any = {
                "scale": {None: grid, 2: {1: 7.5, 2: 8.0, 3: 8.5}, 3: {1: 15, 2: 16, 3: 17}}.get(one.param, {}),
            }.get(one.name, {1: 16, 2: 16, 3: 32})
            assert values == {(step, rows): right[step] for step, rows in values}
    assert [one.follows for one in judged.candidates if one.name == "scale" and one.param] == ["longest"] * 2
    assert [one.follows for one in judged.candidates if one.kind is Kind.COUNTER] == ["rounds", "total"]
    assert not judged.unsteady and not judged.single


@pytest.mark.parametrize("name", ["emulated_sound", "cuda_sound"])
def test_nothing_is_said_of_a_sound_step(name: str) -> None:
    judged = judge(recorded(name))
    assert not judged.candidates and not judged.unsteady
    assert (judged.noise_bytes > 300) is (name == "cuda_sound")


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_said_of_three_captures_of_each_step(seed: int) -> None:
    assert told(judge(fewer(recorded("cuda_sound"), 3, seed)).candidates) == []


def test_all_that_the_faulty_step_bakes_in_is_found() -> None:
    check_planted(judge(recorded("cuda_faulty")))


@pytest.mark.parametrize("seed", range(4))
def test_it_is_found_with_three_captures_of_each_step(seed: int) -> None:
    """Two are not enough: bytes that nobody set then look like values, depending on which captures they are."""
    check_planted(judge(fewer(recorded("cuda_faulty"), 3, seed)))


def test_a_weak_key_is_told_by_what_is_baked_in() -> None:
    weak = weak_keys(judge(recorded("cuda_faulty")).candidates)
    assert [(one.first, one.other, len(one.candidates)) for one in weak] == [((1, 4), (2, 4), 1), ((1, 4), (3, 4), 4)]
