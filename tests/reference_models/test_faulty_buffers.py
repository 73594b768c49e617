"""Faults of buffers do what their rule says, and their twins do nothing: each step by graph against eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cudagraph_doctor.reference_models.faulty_buffers import PLANTED


@pytest.mark.parametrize("name", PLANTED)
def test_the_twin_is_sound(name: str, played: Callable[[Any], Any]) -> None:
    found = played(PLANTED[name][1])
    assert not any(found.old) and not any(found.fresh)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("two-staging-paths", [True] * 6),  # the first batch is full, and what is rebound stays so
        ("optional-input-skipped", [False, True] * 3),
        ("derived-weights-replaced", [False, False, False, True, True, True]),
    ],
)
def test_the_old_graph_is_wrong_and_a_fresh_one_right(
    name: str, wrong: list[bool], played: Callable[[Any], Any]
) -> None:
    found = played(PLANTED[name][0])
    assert found.old == wrong and not any(found.fresh)


def test_the_end_of_an_index_that_is_filled_at_its_front_is_wrong_in_any_graph(played: Callable[[Any], Any]) -> None:
    found = played(PLANTED["index-read-from-tail"][0])
    assert found.old == found.fresh == [False] + [True] * 5  # in step 0 the order is the one that buffers begin with


def test_a_temperature_of_zero_is_wrong_wherever_there_is_padding(played: Callable[[Any], Any]) -> None:
    found = played(PLANTED["padding-temperature-zero"][0])
    assert found.old == found.fresh == found.padding


@pytest.mark.parametrize("world", ["emulated"], indirect=True)  # what nobody wrote is not ours to say on a GPU
def test_what_was_in_a_workspace_is_read_where_there_is_padding(played: Callable[[Any], Any], world: Any) -> None:
    found = played(PLANTED["workspace-uninitialised"][0])
    assert found.old == found.padding


@pytest.mark.parametrize("twin", [False, True])
def test_results_go_where_the_index_says(world: Any, twin: bool) -> None:
    loop = PLANTED["index-read-from-tail"][twin](*world.model)
    plain = loop.forward(loop.next_inputs(0, 3))["tokens"].tolist()
    loop.reset()
    inputs: Any = loop.next_inputs(0, 3)
    inputs.out_rows.copy_(inputs.out_rows.roll(1))
    assert loop.forward(inputs)["tokens"].tolist() == [plain[2], plain[0], plain[1]]
