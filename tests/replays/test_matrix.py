"""The matrix of inputs by steps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cudagraph_doctor.replays.matrix import Cell, cell, parts
from cudagraph_doctor.replays.model import History, Reading, Span
from cudagraph_doctor.report.layout import lay_out
from cudagraph_doctor.report.view import View


def text(history: History, width: int = 80) -> str:
    return lay_out(parts(history, width), View(width=width))


def test_the_picture(made_up: History) -> None:
    assert text(made_up) == (
        "step                         0 1 2\n"
        "rows                         4 3 4\n"
        "graph                        4 4 4\n"
        "slots                        F F F\n"
        "lens                         = T +\n"
        "k_cache                      ? + +\n"
        "head.weight                      D\n"
        "\n"
        "+  changed, as it should\n"
        "=  constant, as it should be\n"
        "F  frozen: as before, and not the fresh value\n"
        "T  stale tail: only rows beyond the batch differ from fresh ones\n"
        "D  the memory was freed\n"
        "?  no fresh value to compare with\n"
        "1 more region: constant, or without a name.\n"
    )


def many(history: History, replays: int) -> History:
    first = history.readings[0]
    return replace(
        history,
        replays=tuple(replace(history.replays[0], index=i, step=i) for i in range(replays)),
        readings=tuple(replace(first, replay=i) for i in range(replays)),
    )


@pytest.mark.parametrize("width", [24, 40, 80])
def test_more_steps_than_fit_come_in_stretches(made_up: History, width: int) -> None:
    lines = text(many(made_up, 120), width).splitlines()
    steps = [word for line in lines if line.startswith("step ") for word in line.split()[1:]]
    assert steps == [str(step) for step in range(120)]
    assert "".join(lines).count("F") == 120 + 1  # and the legend
    grid = lines[: next(i for i, line in enumerate(lines) if line.startswith("F  "))]
    assert all(len(line) <= width for line in grid)


def test_long_names_lose_their_middle(made_up: History) -> None:
    name = "engine.model_runner.attention_backend.metadata.block_table"
    history = replace(made_up, regions=(replace(made_up.regions[0], name=name),))
    assert "engine.m..data.block_table" in text(history, width=53)


def case(made_up: History, **changes: object) -> Cell:
    reading: Reading = replace(made_up.readings[4], **changes)  # type: ignore[arg-type]
    return cell(made_up, made_up.regions[1], reading)


def test_a_stale_tail_is_one_only_behind_the_live_rows_of_an_input(made_up: History) -> None:
    assert case(made_up) is Cell.TAIL
    assert case(made_up, unequal=(Span(8, 16),)) is Cell.WRONG
    assert case(made_up, unequal=(Span(8, 16),), changed=False) is Cell.FROZEN
    assert case(made_up, unequal=()) is Cell.WRONG  # where it differs is not known
    assert case(made_up, replay=2) is Cell.WRONG  # a full batch has no tail
    state = replace(made_up.regions[1], kind="state")
    assert cell(made_up, state, made_up.readings[4]) is Cell.WRONG


def test_what_is_elsewhere_with_the_same_bytes_is_no_fault(made_up: History) -> None:
    held = made_up.readings[3].held
    assert case(made_up, live=held) is Cell.ELSEWHERE
    assert case(made_up, held=held, expected=held, live=held) is Cell.CHANGED


def test_nothing_that_changes(made_up: History) -> None:
    constant = tuple(reading for reading in made_up.readings if reading.region == 2)
    assert text(replace(made_up, readings=constant)) == "No input with a name changed at any replay.\n"
    assert text(replace(made_up, readings=(), replays=())) == "No input with a name changed at any replay.\n"


def test_long_keys_are_letters_that_the_legend_explains(made_up: History) -> None:
    keys = ("(16, 'even')", "(16, 'odd')", "(16, 'even')")
    history = replace(
        made_up, replays=tuple(replace(one, key=key) for one, key in zip(made_up.replays, keys, strict=True))
    )
    shown = text(history)
    assert "graph                        a b a\n" in shown
    assert "a  graph (16, 'even')\n" in shown and "b  graph (16, 'odd')\n" in shown
