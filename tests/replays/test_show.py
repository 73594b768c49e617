"""What is told of one tensor."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cudagraph_doctor.errors import UsageError
from cudagraph_doctor.replays.model import History
from cudagraph_doctor.replays.show import parts
from cudagraph_doctor.report.layout import lay_out
from cudagraph_doctor.report.view import View


def text(history: History, name: str, width: int = 120, color: bool = False) -> str:
    return lay_out(parts(history, name), View(width=width, color=color))


def test_a_frozen_input(made_up: History) -> None:
    assert text(made_up, "slots") == (
        "slots  input, int32 (4,), 16 bytes at 0x7000 when captured\n"
        "  also: runner.slots\n"
        "  allocated at serve.py:31\n"
        "  read by scale_rows, parameter 0 in graph 4, model.py:12\n"
        "Step  Rows  Key  Read     Fresh                             Last written\n"
        "   0     4  4    9 9 9 9  0 16 32 48  not fresh             serve.py:31 in step 0\n"
        "   1     3  4    9 9 9 9  1 17 33 -1  as before, not fresh  serve.py:31 in step 1\n"
        "   2     4  4    9 9 9 9  2 18 34 50  as before, not fresh  serve.py:31 in step 2\n"
        "  CGD301 from step 0 on (4 of 4 rows): putting it right heals the replay\n"
        "\n"
    )


def test_what_differs_is_marked(made_up: History) -> None:
    stale = next(line for line in text(made_up, "lens", color=True).splitlines() if " 3 " in line)
    assert stale.count("\x1b[31m") == 2  # the 7 that was read and the 0 that should have been


def test_a_large_tensor_by_range_and_hash_and_where_its_name_leads_by_now(made_up: History) -> None:
    found = " ".join(text(made_up, "weight", width=200).split())
    assert "head.weight weight, bfloat16 (512, 1024), 1048576 bytes at 0x300000" in found
    assert "-1 to 1, hash" in found and "-1 to 9, hash" in found
    assert "as before, not fresh, freed, the name leads to 0x900000, which holds -1 to 9" in found
    assert "CGD308 from step 2 on: putting it right does not heal the replay" in found


def test_without_a_fresh_value(made_up: History) -> None:
    assert "not known" in text(made_up, "k_cache")


def test_long_contents_are_cut(made_up: History) -> None:
    long = replace(made_up.readings[0].held, size=80, shape=(20,), data=bytes(80))
    history = replace(made_up, readings=(replace(made_up.readings[0], held=long, expected=None),))
    assert "0 0 0 ... 20 in all" in " ".join(text(history, "slots", width=200).split())


def test_many_readers_are_counted(made_up: History) -> None:
    slots = replace(made_up.regions[0], readers=made_up.regions[0].readers * 61)
    found = text(replace(made_up, regions=(slots,)), "slots")
    assert found.count("read by") == 6 and "and by 55 more parameters" in found


def test_an_alias_will_do_and_so_will_its_end(made_up: History) -> None:
    assert text(made_up, "runner.slots") == text(made_up, "slots")
    renamed = replace(made_up, regions=(replace(made_up.regions[0], name="metadata.slots", aliases=()),))
    assert text(renamed, "slots").startswith("metadata.slots  input")


def test_what_was_not_watched_is_said(made_up: History) -> None:
    assert "No replay of this run was watched" in text(replace(made_up, readings=()), "slots")


def test_a_name_that_nobody_reads_is_refused_with_the_nearest(made_up: History) -> None:
    with pytest.raises(UsageError, match=r'reads a tensor "slot"\. Did you mean "slots"\?') as refused:
        text(made_up, "slot")
    assert "head.weight, k_cache, lens, rows, runner.slots, slots" in refused.value.seen


@pytest.mark.parametrize("width", [40, 60])
def test_narrow_terminals(made_up: History, width: int) -> None:
    assert all(len(line) <= width for line in text(made_up, "lens", width).splitlines()[1:])
