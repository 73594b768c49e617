"""Forks and joins of one capture."""

from __future__ import annotations

from cudagraph_doctor.observation.ledger import Fork, Ledger

MAIN, SIDE, OTHER, OUTSIDE = range(1, 5)


class Event:
    pass


def fork(stream: int) -> Fork:
    return Fork(stream, 0, (), "Event.wait")


def after(ledger: Ledger, source: int, target: int) -> None:
    """`target` waits for what was issued to `source` so far."""
    event = Event()
    ledger.record(event, source)
    ledger.wait(event, fork(target))


def unjoined(ledger: Ledger) -> list[int]:
    return [fork.stream for fork in ledger.unjoined()]


def test_a_fork_that_is_joined() -> None:
    ledger = Ledger(MAIN)
    after(ledger, MAIN, SIDE)
    ledger.work(SIDE)
    assert ledger.captures(SIDE) and unjoined(ledger) == [SIDE]
    after(ledger, SIDE, MAIN)
    assert unjoined(ledger) == []


def test_work_after_the_join_is_not_joined() -> None:
    ledger = Ledger(MAIN)
    after(ledger, MAIN, SIDE)
    after(ledger, SIDE, MAIN)
    ledger.work(SIDE)
    assert unjoined(ledger) == [SIDE]


def test_a_join_by_way_of_another_stream() -> None:
    ledger = Ledger(MAIN)
    after(ledger, MAIN, SIDE)
    ledger.work(SIDE)
    after(ledger, SIDE, OTHER)
    ledger.work(OTHER)
    assert unjoined(ledger) == [SIDE, OTHER]
    after(ledger, OTHER, MAIN)
    assert unjoined(ledger) == []


def test_a_fork_without_work_needs_no_join_unless_work_is_not_counted() -> None:
    for counts, expected in ((True, []), (False, [SIDE])):
        ledger = Ledger(MAIN, counts)
        after(ledger, MAIN, SIDE)
        assert unjoined(ledger) == expected
        after(ledger, SIDE, MAIN)
        assert unjoined(ledger) == []


def test_what_ties_the_capture_to_others() -> None:
    ledger = Ledger(MAIN)
    never, before, inside = Event(), Event(), Event()
    ledger.record(before, OUTSIDE)
    ledger.record(inside, MAIN)
    assert ledger.is_foreign(never, MAIN) and ledger.is_foreign(before, MAIN)
    assert not ledger.is_foreign(inside, MAIN)
    assert not ledger.is_foreign(before, OUTSIDE)  # two others may wait for each other
    ledger.wait(before, fork(OUTSIDE))
    ledger.work(OUTSIDE)
    assert not ledger.captures(OUTSIDE) and unjoined(ledger) == []


def test_an_event_that_is_recorded_again_marks_the_later_work() -> None:
    ledger = Ledger(MAIN)
    after(ledger, MAIN, SIDE)
    event = Event()
    ledger.record(event, SIDE)
    ledger.work(SIDE)
    ledger.wait(event, fork(MAIN))
    assert unjoined(ledger) == [SIDE]
    ledger.record(event, SIDE)
    ledger.wait(event, fork(MAIN))
    assert unjoined(ledger) == []
