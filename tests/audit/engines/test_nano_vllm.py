"""nano-vllm's lists, against what its source gives for these maxima (computed by hand)."""

from __future__ import annotations

import pytest

from cudagraph_doctor.audit import coverage
from cudagraph_doctor.audit.engines import nano_vllm
from cudagraph_doctor.audit.engines.rule import Asked
from cudagraph_doctor.audit.fields import Fields
from cudagraph_doctor.audit.keys import KeySet, Mode, Served


def keys(most: int, rule: str = "nano-vllm") -> KeySet:
    return nano_vllm.read(Fields("f", {"max_num_seqs": most}), Asked(rule)).sets[0]


@pytest.mark.parametrize(("most", "holes"), [(500, range(497, 501)), (20, range(17, 21)), (512, ()), (3, ())])
def test_the_public_holes(most: int, holes: range) -> None:
    assert [n for gap in coverage.gaps(keys(most)) for n in gap.requests] == list(holes)


def test_what_happens_in_them() -> None:
    assert keys(500).serve(498) == Served(Mode.FAILS)
    assert keys(600).serve(513) == Served(Mode.EAGER), "above 512 no key is looked up"


def test_keys_that_are_larger_than_the_limit() -> None:
    assert keys(3).full == (1, 2, 4, 8)
    assert coverage.unreachable(keys(3)) == (8,)


@pytest.mark.parametrize("most", [*range(1, 40), 100, 500, 512])
def test_the_proposed_rule_covers_all(most: int) -> None:
    fixed = keys(most, "nano-vllm-216")
    assert coverage.gaps(fixed) == []
    assert fixed.full[-1] == most
    if most % 16 == 0:
        assert fixed.full == keys(most).full


def test_eager_on_purpose() -> None:
    made = nano_vllm.read(Fields("f", {"max_num_seqs": 8, "enforce_eager": True}), Asked())
    assert made.turned_off == "enforce_eager"


def test_the_default_limit() -> None:
    assert nano_vllm.read(Fields("f", {}), Asked()).sets[0].most == 512
