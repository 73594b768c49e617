"""Random orders with control: what another key leaves behind is found, what differs anyway is not judged."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from cudagraph_doctor.measuring.switching import switch
from cudagraph_doctor.proof.arms import Arm, Discovery, Result
from cudagraph_doctor.proof.subject import Planned

VISITS = [Planned(i, 0, key, key) for i, key in enumerate((8, 4, 2, 1))]


class Subject:
    def reset(self) -> None: ...

    def eager(self, at: Planned) -> None: ...

    def has_replayed(self, at: Planned) -> bool:
        return at.key != 1


class Played:
    """Stands for `Arms`: each visit gives what `gives(key, keys so far)` says."""

    def __init__(self, gives: Callable[[int, list[int]], float]) -> None:
        self.subject = Subject()
        self.found = Discovery()
        self.gives = gives
        self.keys: list[int] = []

    def play(
        self, steps: Sequence[Planned], around: Callable[[Planned], contextlib.AbstractContextManager[bool]]
    ) -> Iterator[Result]:
        for at in steps:
            with around(at) as by_graph:
                assert by_graph
                key = int(str(at.key))
                value = self.gives(key, self.keys)
                self.keys.append(key)
                yield Result(Arm.REPLAYED, {"logits": torch.tensor([value])}, {})


def switched(gives: Callable[[int, list[int]], float]) -> Any:
    return switch(Played(gives), VISITS, seed=0)  # type: ignore[arg-type]


def test_keys_that_do_not_care() -> None:
    found = switched(lambda key, before: float(key))
    assert (found.dependences, found.unstable, found.orders, found.visits) == ((), (), 3, 9)


def test_a_key_that_cares_which_one_was_last() -> None:
    found = switched(lambda key, before: float(key) + (key == 8 and before[-1:] in ([2], [4])))
    [one] = found.dependences
    assert (one.key, one.times) == (8, 3) and one.last_key in (2, 4)
    assert one.differs.startswith("logits: 1 of 1 values differ")


def test_a_key_that_is_lost_for_good() -> None:
    """The control is what it gave before."""
    found = switched(lambda key, before: float(key) + (key == 2 and len(before) > 6 and 8 in before[6:]))
    assert [one.key for one in found.dependences] == [2]


def test_a_key_that_differs_anyway_is_not_judged() -> None:
    found = switched(lambda key, before: len(before) if key == 4 else float(key))
    assert (found.dependences, found.unstable) == ((), (4,))


def test_what_happens_once_is_not_spoken_of() -> None:
    odd = 9
    found = switched(lambda key, before: 0.5 if len(before) == odd else float(key))
    assert found.dependences == ()
