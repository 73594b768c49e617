"""Arrivals through time: what drains, and what is stuck on its fallback."""

from __future__ import annotations

import pytest

from cudagraph_doctor.audit import simulate
from cudagraph_doctor.audit.costs import Modelled
from cudagraph_doctor.audit.keys import KeySet
from cudagraph_doctor.audit.simulate import SAMPLES, Arrivals, compare, run

COSTS = Modelled(base_ms=1.0, row_ms=0.02, launch_ms=12.0)
KEYS = KeySet("decode", (1, 2, 4, 8, 16, 32, 64), 4096)


@pytest.mark.parametrize("seed", range(3))
def test_a_burst_from_which_the_load_never_recovers(seed: int) -> None:
    # 60 requests a second of 200 steps: 12,000 tokens a second. Replays serve that with 16 requests; eager steps of
    # 12 ms need 144, which is above the largest key: both go on for good.
    found = compare(Arrivals(60, 200, burst=400, seed=seed), KEYS, COSTS)
    assert found.never_recovers
    assert 110 < found.listed.late_batch < 180
    assert found.every_size.late_batch < 40 and found.every_size.late_missed == 0


@pytest.mark.parametrize(
    ("arrivals", "keys"),
    [
        (Arrivals(60, 200), KEYS),  # no burst
        (Arrivals(20, 200, burst=400), KEYS),  # light enough to drain
        (Arrivals(60, 200, burst=400), KeySet("decode", (*KEYS.full, 128, 256, 512), 512)),  # nothing misses
        (Arrivals(60, 200, burst=400), KeySet("decode", KEYS.full, 64)),  # no more are admitted
    ],
)
def test_loads_that_recover(arrivals: Arrivals, keys: KeySet) -> None:
    assert not compare(arrivals, keys, COSTS).never_recovers


def test_too_much_for_any_list_is_not_the_list_s_fault() -> None:
    found = compare(Arrivals(5000, 200), KEYS, COSTS)
    assert found.listed.late_missed == 1.0
    assert not found.never_recovers


def test_the_same_seed_is_the_same_course() -> None:
    arrivals = Arrivals(30, 50, seconds=5, seed=3)
    assert compare(arrivals, KEYS, COSTS) == compare(arrivals, KEYS, COSTS)


def test_throughput_is_what_arrives() -> None:
    course = run(Arrivals(50, 100, seconds=60), 512, lambda n: 2.0, lambda n: False)
    tokens = sum(batch * steps for batch, steps in course.steps.items())
    assert tokens / 60 == pytest.approx(50 * 100, rel=0.1)
    assert len(course.batches) == SAMPLES
    assert course.seconds == pytest.approx(60, abs=1)


def test_no_more_than_admitted_run_at_once() -> None:
    course = run(Arrivals(500, 100, seconds=5), 8, lambda n: 2.0, lambda n: False)
    assert max(course.steps) == 8 and course.waiting > 100


def test_the_burst_comes_once() -> None:
    course = run(Arrivals(0.001, 10, burst=300, seconds=10), 1000, lambda n: 1.0, lambda n: False)
    assert course.waiting == 0
    assert sum(batch * steps for batch, steps in course.steps.items()) == pytest.approx(3000, rel=0.2)


def test_a_course_that_takes_too_many_steps_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulate, "_MOST_STEPS", 5000)
    found = compare(Arrivals(60, 200, burst=400), KEYS, COSTS)
    assert found.listed.seconds < 60
    assert not found.whole and not found.never_recovers


def test_steps_that_take_no_time_end_all_the_same() -> None:
    assert compare(Arrivals(10, 10, seconds=1), KEYS, Modelled(0.0, 0.0, 0.0)).listed.seconds == pytest.approx(1)
