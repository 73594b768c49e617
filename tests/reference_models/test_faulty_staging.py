"""Faults of staging do what their rule says, and their twins do nothing: each step by graph against eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cudagraph_doctor.reference_models.faulty_staging import PLANTED


@pytest.mark.parametrize("name", PLANTED)
def test_the_twin_is_sound(name: str, played: Callable[[Any], Any]) -> None:
    found = played(PLANTED[name][1])
    assert not any(found.old) and not any(found.fresh)


@pytest.mark.parametrize("name", ["slot-mapping-not-copied", "block-table-first-column"])
def test_what_is_not_staged_is_wrong_in_any_graph(name: str, played: Callable[[Any], Any]) -> None:
    found = played(PLANTED[name][0])
    assert all(found.old) and all(found.fresh)


@pytest.mark.parametrize("name", ["seq-lens-rebound", "metadata-recreated"])
def test_what_is_rebound_is_wrong_in_the_old_graph_only(name: str, played: Callable[[Any], Any]) -> None:
    found = played(PLANTED[name][0])
    assert all(found.old) and not any(found.fresh)


def test_padding_that_writes_slot_0_is_wrong_wherever_there_is_padding(played: Callable[[Any], Any]) -> None:
    found = played(PLANTED["padding-writes-slot-0"][0])
    assert found.old == found.fresh == found.padding


def test_a_stale_tail_of_seq_lens_is_wrong_after_a_shrink_in_the_graph_that_was_there(
    played: Callable[[Any], Any],
) -> None:
    found = played(PLANTED["stale-seq-lens-tail"][0])
    assert found.old == found.padding and not any(found.fresh)
