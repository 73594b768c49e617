"""Gaps, unreachable keys, ranks."""

from __future__ import annotations

from cudagraph_doctor.audit.coverage import Kind, adapters_without_key, disagreements, gaps, unreachable
from cudagraph_doctor.audit.keys import Configuration, KeySet, Mode, Unit


def kinds(keys: KeySet) -> dict[Kind, tuple[int, ...]]:
    return {gap.kind: gap.requests for gap in gaps(keys)}


def test_none() -> None:
    assert gaps(KeySet("decode", (1, 2, 4), 4)) == []


def test_above_and_inside() -> None:
    assert kinds(KeySet("decode", (1, 4), 6, padded=False)) == {Kind.INSIDE: (2, 3), Kind.ABOVE: (5, 6)}


def test_without_any_key_all_is_above() -> None:
    assert kinds(KeySet("decode", (), 2)) == {Kind.ABOVE: (1, 2)}


def test_piecewise_only_if_others_are_full() -> None:
    assert kinds(KeySet("decode", (1, 2), 3, piecewise=(1, 2, 4))) == {Kind.PIECEWISE: (3,)}
    assert kinds(KeySet("decode", (), 3, piecewise=(1, 2, 4))) == {}


def test_speculative() -> None:
    keys = KeySet("verify", (3, 6), 4, Unit.TOKENS, 3, uniform=True)
    [gap] = gaps(keys)
    assert (gap.kind, gap.requests, gap.sizes, gap.modes) == (Kind.SPECULATIVE, (3, 4), (9, 12), (Mode.EAGER,))


def test_unreachable() -> None:
    assert unreachable(KeySet("decode", (1, 2, 4, 8, 16), 6)) == (16,)
    assert unreachable(KeySet("decode", (1, 8), 6)) == ()
    assert unreachable(KeySet("decode", (8, 16), 6, for_mixed=True)) == ()
    assert unreachable(KeySet("decode", (8, 16), 6, piecewise=(8, 16))) == (), "a mixed step may use it"


def test_adapters() -> None:
    assert adapters_without_key(KeySet("decode", (1,), 1, adapters=(1, 2), most_adapters=4)) == (0, 3, 4)


def test_ranks() -> None:
    def configuration(*sizes: int) -> Configuration:
        return Configuration("f", "plain", (KeySet("decode", tuple(sorted(sizes)), 8),))

    assert list(disagreements([configuration(1, 2), configuration(2, 1)])) == []
    [apart] = disagreements([configuration(1, 2, 4), configuration(1, 8), configuration(1, 2, 4, 8)])
    assert apart.ranks == ((0, (8,)), (1, (2, 4)))
