"""The played requests keep the promises that steps, and faults, lean on."""

from __future__ import annotations

import pytest

from cudagraph_doctor.reference_models.requests import BLOCK_SIZE, LONGEST_REQUEST, MAX_ROWS, Request, _played, running

BLOCKS = 47
SEEDS = range(5)
STEPS = 150


def played(seed: int, rows: int = MAX_ROWS, steps: int = STEPS) -> list[tuple[Request, ...]]:
    return [running(step, rows, seed, BLOCKS) for step in range(steps)]


@pytest.mark.parametrize("seed", SEEDS)
def test_no_two_requests_share_a_block(seed: int) -> None:
    for requests in played(seed):
        owned = [block for request in requests for block in request.blocks]
        assert len(owned) == len(set(owned)) and set(owned) <= set(range(BLOCKS))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_request_owns_the_blocks_that_its_tokens_need_and_no_more(seed: int) -> None:
    for requests in played(seed):
        for request in requests:
            assert 0 < request.length <= LONGEST_REQUEST
            assert (len(request.blocks) - 1) * BLOCK_SIZE < request.length <= len(request.blocks) * BLOCK_SIZE
            assert request.slot // BLOCK_SIZE == request.blocks[-1]
            assert request.slot % BLOCK_SIZE == request.position % BLOCK_SIZE


@pytest.mark.parametrize("seed", SEEDS)
def test_a_request_that_stays_grows_by_one_token_and_keeps_its_blocks(seed: int) -> None:
    stayed = 0
    for before, after in zip(played(seed), played(seed)[1:], strict=False):
        earlier = {request.number: request for request in before}
        for request in after:
            if request.number in earlier:
                stayed += 1
                old = earlier[request.number]
                assert request.length == old.length + 1
                assert request.blocks[: len(old.blocks)] == old.blocks
    assert stayed


def test_any_order_any_number_of_times() -> None:
    forward = played(0, rows=5, steps=60)
    _played.cache_clear()
    assert [running(step, 5, 0, BLOCKS) for step in reversed(range(60))] == forward[::-1]
    assert running(7, 5, 0, BLOCKS) == forward[7]


def test_fewer_rows_are_the_same_requests_further_up() -> None:
    assert running(4, 3, 0, BLOCKS) == running(4, 16, 0, BLOCKS)[-3:]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_patient_request(seed: int) -> None:
    for step in range(48):
        requests = running(step, MAX_ROWS, seed, BLOCKS)
        patient = requests[-1]
        assert patient.number == 0 and patient.length == 31 + step
        assert patient.blocks[0] == 0, "slot 0 is its first token's"
        assert patient.length > max(request.length for request in requests[:-1])
    assert len(running(1, 1, seed, BLOCKS)[0].blocks) + 1 == len(running(2, 1, seed, BLOCKS)[0].blocks)


@pytest.mark.parametrize("seed", SEEDS)
def test_requests_leave_join_and_take_over_blocks(seed: int) -> None:
    assert running(2, 2, seed, BLOCKS)[0].number == 1 and running(3, 2, seed, BLOCKS)[0].number != 1
    owners: dict[int, set[int]] = {}
    for requests in played(seed, steps=12):
        for request in requests:
            for block in request.blocks:
                owners.setdefault(block, set()).add(request.number)
    assert sum(len(numbers) > 1 for numbers in owners.values()) >= 8


@pytest.mark.parametrize("seed", SEEDS)
def test_lengths_differ(seed: int) -> None:
    assert len({request.length for request in running(0, MAX_ROWS, seed, BLOCKS)}) >= 6


def test_seeds_differ() -> None:
    assert running(5, 16, 0, BLOCKS) != running(5, 16, 1, BLOCKS)


@pytest.mark.parametrize(("step", "rows"), [(0, 0), (0, 17), (-1, 1)])
def test_steps_that_are_not_played(step: int, rows: int) -> None:
    with pytest.raises(ValueError, match="1 to 16 rows"):
        running(step, rows, 0, BLOCKS)
