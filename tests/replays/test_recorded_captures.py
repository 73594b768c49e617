"""The judge of dumps on recorded ones (see tests/record_captures.py): all of them, and as few as a check makes."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from cudagraph_doctor.replays.baked import Judged, judge, weak_keys
from cudagraph_doctor.replays.candidates import EACH_CAPTURE, Candidate, Kind, input_of
from cudagraph_doctor.replays.model import Dump
from cudagraph_doctor.replays.plain import from_plain

RECORDED = Path(__file__).parents[1] / "data" / "captures"
ATTENTION, FUNCTOR = "cudnn_generated_fort_native_sdpa", "vectorized_elementwise_kernel<AUnaryFunctor>"
Told = tuple[Kind, str, int | None, tuple[tuple[int, str], ...]]
"""Kind, first letters of the kernel, parameter, (offset, dtype) of the parts."""
PLANTED: list[Told] = [
    (Kind.LAUNCH, "scale", None, ((0, "grid"),)),
    (Kind.NODES, "vectorized_elementwise_kernel", None, ((0, "nodes"),)),
    (Kind.VALUE, "scale", 2, ((0, "float32"),)),
    (Kind.VALUE, "scale", 3, ((0, "int32"),)),
    (Kind.COUNTER, FUNCTOR, 1, ((4, "float32"),)),
    (Kind.COUNTER, FUNCTOR, 1, ((4, "float32"),)),
    (Kind.DRAW, FUNCTOR, 1, ((4, "float32"),)),
    (Kind.DRAW, FUNCTOR, 1, ((4, "float32"),)),
]
ATTENDED = {key: {(1, 4): 16, (2, 4): 16, (3, 4): 32, (1, 3): 16} for key in ((0, 20), (4, 32), (7, 24))}
"""(parameter, offset) of the attention kernel -> the length by input, rounded up. cuDNN makes a plan for each such
length, and a plan's parameters have words that nobody set: beside these others may differ, one time in two."""


@cache
def recorded(name: str) -> tuple[Dump, ...]:
    plain = json.loads(gzip.decompress((RECORDED / f"{name}.json.gz").read_bytes()))
    return tuple(from_plain(Dump, dump) for dump in plain["dumps"])


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
            one.name,
            one.param,
            tuple((part.offset, part.dtype) for part in one.parts),
        )
        for one in candidates
    ]


def check_planted(judged: Judged) -> None:
    by_plan = [one for one in judged.candidates if one.name.startswith(ATTENTION)]
    attended = {
        (one.param, part.offset): dict(zip(one.seen_at, part.values, strict=True))
        for one in by_plan
        for part in one.parts
    }
    assert {at: attended.get(at) for at in ATTENDED} == ATTENDED
    others = [one for one in judged.candidates if one not in by_plan]
    assert told(others) == PLANTED
    for one in others:
        if one.kind not in EACH_CAPTURE and one.kind is not Kind.NODES:
            values = {at: value for at, (value,) in one.values.items()}
            grid = {1: (4, 1, 1), 2: (5, 1, 1), 3: (5, 1, 1)}
            right: Any = {
                "scale": {None: grid, 2: {1: 7.5, 2: 8.0, 3: 8.5}, 3: {1: 15, 2: 16, 3: 17}}.get(one.param, {}),
            }[one.name]
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
    differing = [(one.first, one.other, {c.name.split("<")[0] for c in one.candidates}) for one in weak]
    assert [(first, other) for first, other, _ in differing] == [((1, 4), (2, 4)), ((1, 4), (3, 4))]
    assert differing[0][2] == {"scale"}
    assert any(name.startswith(ATTENTION) for name in differing[1][2])
