"""Random orders with control: what another key leaves behind is found, what differs anyway is not judged."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import torch

from cudagraph_doctor.measuring.switching import switch
from cudagraph_doctor.proof.arms import Arm, Discovery, Result
from cudagraph_doctor.proof.extent import Extent
from cudagraph_doctor.proof.packed import Packed
from cudagraph_doctor.proof.state import Snapshot
from cudagraph_doctor.proof.subject import Planned

VISITS = [Planned(i, 0, key, key) for i, key in enumerate((8, 4, 2, 1))]


class Subject:
    def reset(self) -> None: ...

    def eager(self, at: Planned) -> None: ...

    def has_replayed(self, at: Planned) -> bool:
        return at.key != 1


ROWS = Extent(0, 8)


class Rows:
    """Stands for `Memory`: eight bytes of state."""

    def __init__(self) -> None:
        self.data = torch.zeros(ROWS.bytes, dtype=torch.uint8)

    def refresh(self) -> None: ...

    def save(self, extents: Collection[Extent]) -> Snapshot:
        return Snapshot(Packed({ROWS: self.data} if extents else {}))

    def restore(self, snapshot: Snapshot, random: bool) -> None:
        assert not random
        self.data.copy_(snapshot.memory[ROWS])


class Played:
    """Stands for `Arms`: each visit gives `gives(key, keys so far)`, and `writes(key, keys so far, state)`."""

    def __init__(
        self,
        gives: Callable[[int, list[int]], float],
        writes: Callable[[int, list[int], torch.Tensor], object] | None = None,
    ) -> None:
        self.subject = Subject()
        self.found = Discovery(state={ROWS} if writes else set())
        self.memory = Rows()
        self.gives = gives
        self.writes = writes or (lambda key, before, state: None)
        self.keys: list[int] = []

    def play(
        self, steps: Sequence[Planned], around: Callable[[Planned], contextlib.AbstractContextManager[bool]]
    ) -> Iterator[Result]:
        for at in steps:
            with around(at) as by_graph:
                assert by_graph
                key = int(str(at.key))
                value = self.gives(key, self.keys)
                self.writes(key, self.keys, self.memory.data)
                self.keys.append(key)
                yield Result(Arm.REPLAYED, {"logits": torch.tensor([value])}, self.memory.save(self.found.state).memory)


def switched(
    gives: Callable[[int, list[int]], float], writes: Callable[[int, list[int], torch.Tensor], object] | None = None
) -> Any:
    return switch(Played(gives, writes), VISITS, seed=0)  # type: ignore[arg-type]


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


def test_rows_that_another_key_wrote_are_no_result() -> None:
    """`reset()` leaves them, and nobody reads them."""
    found = switched(lambda key, before: 1.0, lambda key, before, state: state[:key].fill_(key))
    assert (found.dependences, found.unstable) == ((), ())


def test_rows_that_are_left_out_after_another_key() -> None:
    """Most of what it skips holds what it would have written: its first visit did."""

    def writes(key: int, before: list[int], state: torch.Tensor) -> None:
        if key == 8 and before[-1:] == [2]:
            state[:1].fill_(8)  # "the others are there already"
        else:
            state[:key].fill_(key)

    found = switched(lambda key, before: 1.0, writes)
    assert [(one.key, one.last_key, one.differs) for one in found.dependences] == [(8, 2, "the state that it leaves")]


def test_what_reset_forgets_counts_where_outputs_follow() -> None:
    """A counter that a key leaves above zero: that is no leftover, for the next key's output shows it."""
    state = torch.zeros(1)

    def gives(key: int, before: list[int]) -> float:
        value = float(state)
        state.fill_(1.0 if key == 4 else 0.0)
        return 0.0 if key == 4 else value

    found = switched(gives, lambda key, before, memory: memory[:key].fill_(key))
    assert {one.last_key for one in found.dependences} == {4}
