"""The evidence of one fault, from the harm to the cure: each fact once, whichever check knows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudagraph_doctor.causes.wording import evidence

if TYPE_CHECKING:
    from tests.causes.conftest import Make


def test_facts_of_both_checks_are_told_in_order(make: Make) -> None:
    diff = make(
        "CGD102",
        "slots",
        step=1,
        replayed_against_eager="logits: 3 of 4 values differ",
        eager_against_eager="bit for bit equal",
        first_diverging_module="layers.0.attn",
        state=[f"k_cache[1, {slot}] slot {slot}: missing" for slot in (17, 18)],
    )
    inputs = make(
        "CGD301",
        "slot_mapping",
        step=1,
        effect="as above",
        replays=4,
        not_as_expected_at=3,
        read_by=["attend, parameter 4, launched at /app/decode.py:88"],
        last_written="step 0, /app/stage.py:12",
        healed_by="Healed by writing 16 bytes",
    )
    assert list(evidence([("inputs", inputs), ("diff", diff)])) == [
        "the replay differs from eager from step 1 on, first in layers.0.attn: logits: 3 of 4 values differ",
        "eager against itself: bit for bit equal",
        "wrong in memory: slots 17, 18 of k_cache (missing)",
        "input `slot_mapping`: not as it should be at 3 of 4 replays looked at",
        "read by attend, parameter 4, launched at decode.py:88",
        "last written at step 0, stage.py:12",
        "healed by writing 16 bytes",
    ]


def test_what_is_told_of_the_first_step_is_of_the_check_that_saw_it(make: Make) -> None:
    hint = "right until step 1: something that changes then"
    diff = make("CGD101", step=1, replayed_against_eager="up to 9 of 9", first_bad_step_hint=hint)
    inputs = make("CGD320", step=0, effect="up to 1 of 9")
    told = list(evidence([("inputs", inputs), ("diff", diff)]))
    assert told[0] == "the replay differs from eager from step 0 on: up to 1 of 9" and hint not in told
    told = list(evidence([("diff", diff), ("inputs", make("CGD320", step=1, effect="up to 1 of 9"))]))
    assert told[0] == "the replay differs from eager from step 1 on: up to 9 of 9" and hint in told


def test_state_that_has_no_slots_is_told_as_it_is(make: Make) -> None:
    assert "wrong in memory: counter: other" in evidence([("diff", make("CGD102", state=["counter: other"]))])


def test_a_capture_that_fails(make: Make) -> None:
    finding = make("CGD201", first_error="CUDA error: not permitted", plain_torch_shows="another error, later")
    assert list(evidence([("capture", finding)])) == [
        "the capture fails with: CUDA error: not permitted",
        "what torch alone shows: another error, later",
    ]


def test_layers_that_launch_the_same_are_one_line(make: Make) -> None:
    told = [f"attend, parameter 4, launched at /app/decode.py:88 in layers.{n}" for n in range(3)]
    finding = make("CGD301", read_by=[*told, "copy, parameter 0"])
    assert list(evidence([("inputs", finding)])) == [
        "read by attend, parameter 4, launched at decode.py:88 in layers.0 and 2 more",
        "read by copy, parameter 0",
    ]
