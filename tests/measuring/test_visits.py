"""Which batches are played of each key."""

from __future__ import annotations

import pytest

from cudagraph_doctor import reference_models
from cudagraph_doctor.errors import Inconclusive, TargetError
from cudagraph_doctor.graph.emulated import EmulatedBackend
from cudagraph_doctor.measuring.visits import first_steps, number, planned
from cudagraph_doctor.proof.engine import EngineSubject
from cudagraph_doctor.proof.loop import LoopSubject
from cudagraph_doctor.settings import Settings


def loop() -> LoopSubject:
    backend = EmulatedBackend()
    return LoopSubject(reference_models.load("loop", device=backend.device, preset="tiny"), backend)


def test_the_full_batch_one_less_and_the_smallest() -> None:
    keys, steps = planned(loop(), Settings("audit"))
    assert {key.size: [at.rows for at in key.steps] for key in keys} == {
        16: [16, 15, 9],
        8: [8, 7, 5],
        4: [4, 3],
        2: [2],
        1: [1],
    }
    assert [at.index for at in steps] == list(range(10))
    assert (keys[0].exact.rows, keys[0].smallest.rows) == (16, 9)


def test_some_keys() -> None:
    keys, _ = planned(loop(), Settings("audit", buckets=(2, 8)))
    assert [(key.size, key.smallest.rows) for key in keys] == [(8, 5), (2, 2)], "key 8 serves no batch of key 4"
    with pytest.raises(TargetError, match="no bucket 3"):
        planned(loop(), Settings("audit", buckets=(3,)))


def test_switching_plays_the_first_step() -> None:
    subject = loop()
    keys, steps = planned(subject, Settings("audit", buckets=(4, 1)))
    found = first_steps(subject, keys, len(steps))
    assert [(at.index, at.step, at.rows, at.key) for at in found] == [(3, 0, 4, 4), (4, 0, 3, 4), (5, 0, 1, 1)]


def test_an_engine_whose_keys_tell_no_size() -> None:
    class Nameless:
        batch_sizes = (1, 2)

        def reset(self) -> None: ...
        def graphs(self, on: bool) -> None: ...
        def step(self, i: int, n: int) -> None: ...
        def key(self, i: int, n: int) -> str:
            return "decode"

    with pytest.raises(Inconclusive, match="a key that tells its size"):
        planned(EngineSubject(Nameless(), EmulatedBackend()), Settings("audit"))


@pytest.mark.parametrize(
    ("key", "size"), [(8, 8), ((8, "even"), 8), ("8", None), (True, None), ((), None), (None, None)]
)
def test_the_size_in_a_key(key: object, size: int | None) -> None:
    assert number(key) == size
