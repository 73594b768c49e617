"""The table of verdicts, on made-up records."""

from __future__ import annotations

import pytest

from cudagraph_doctor.proof.compare import Difference, Level
from cudagraph_doctor.proof.state_diff import StateDifference
from cudagraph_doctor.proof.verdict import Gap, Kind, StepRecord, judge, needs_fresh

EQUAL = Gap()
SMALL = Gap((Difference("logits", Level.SMALL, max_abs=0.01, scale=1.0, count=3, total=9),))
LARGE = Gap((Difference("logits", Level.LARGE, max_abs=2.0, scale=1.0, count=9, total=9),))
STATE = Gap((), StateDifference(Level.LARGE, extra=4, names={"k_cache": None}))


def record(replayed: Gap, **facts: object) -> StepRecord:
    """A step whose replay differs by `replayed` from eager."""
    made = StepRecord(replayed=replayed)
    for name, value in facts.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize(
    ("facts", "kind"),
    [
        (record(EQUAL), Kind.CLEAN),
        # the fresh graph is right, the old one is not
        (record(LARGE, fresh=EQUAL, fresh_replayed=LARGE), Kind.FROZEN),
        (record(SMALL, fresh=EQUAL, fresh_replayed=SMALL), Kind.FROZEN),
        (record(LARGE, fresh=SMALL, fresh_replayed=LARGE), Kind.FROZEN),
        # the fresh graph is wrong too, in another way
        (record(LARGE, fresh=LARGE, fresh_replayed=LARGE), Kind.DIFFERS),
        # the fresh graph is as wrong
        (record(LARGE, fresh=LARGE, fresh_replayed=EQUAL), Kind.DIFFERS),
        (record(SMALL, fresh=SMALL, fresh_replayed=EQUAL), Kind.NUMERICS),
        # nobody can tell
        (record(LARGE), Kind.UNTOLD),
        (record(SMALL), Kind.NUMERICS),
        # other kernels in the old graph: rounding is a note, more is not
        (record(SMALL, fresh=EQUAL, fresh_replayed=SMALL, same_nodes=False), Kind.NUMERICS),
        (record(LARGE, fresh=EQUAL, fresh_replayed=LARGE, same_nodes=False), Kind.FROZEN),
        # state alone: harm decides
        (record(STATE, fresh=STATE, fresh_replayed=EQUAL), Kind.HARMLESS),
        (record(STATE, fresh=STATE, fresh_replayed=EQUAL, harm_step=3), Kind.DIFFERS),
        (record(STATE, fresh=EQUAL, fresh_replayed=STATE), Kind.HARMLESS),
        (record(STATE, fresh=EQUAL, fresh_replayed=STATE, harm_step=3), Kind.FROZEN),
        # with the padding that the doctor made up, eager does the same; or not
        (record(EQUAL, padding=LARGE), Kind.PADDING),
        (record(STATE, padding=LARGE), Kind.PADDING),
        (record(LARGE, padding=LARGE, eager_control=LARGE), Kind.PADDING),
        (record(LARGE, padding=LARGE, fresh=EQUAL, fresh_replayed=LARGE), Kind.FROZEN),
        (record(EQUAL, padding=EQUAL, replay_control=LARGE), Kind.UNSTABLE),
        # controls
        (record(LARGE, eager_control=LARGE), Kind.UNKNOWN),
        (record(SMALL, replay_control=LARGE), Kind.UNSTABLE),
        (record(SMALL, eager_control=SMALL), Kind.NUMERICS),
        (record(SMALL, replay_control=SMALL), Kind.NUMERICS),
        (record(LARGE, eager_control=SMALL, fresh=LARGE, fresh_replayed=SMALL, fresh_control=SMALL), Kind.DIFFERS),
        (record(LARGE, eager_control=SMALL, fresh=SMALL, fresh_replayed=LARGE, fresh_control=SMALL), Kind.FROZEN),
    ],
)
def test_table(facts: StepRecord, kind: Kind) -> None:
    assert judge(facts) is kind


def test_a_fresh_graph_is_captured_only_where_it_is_needed() -> None:
    assert not needs_fresh(record(EQUAL))
    assert needs_fresh(record(SMALL))
    assert not needs_fresh(record(SMALL, eager_control=SMALL))
    assert needs_fresh(record(LARGE, eager_control=SMALL))


def test_noise_must_be_exceeded_by_far() -> None:
    much = Gap((Difference("logits", Level.SMALL, max_abs=0.09, scale=1.0),))
    assert needs_fresh(record(much, eager_control=SMALL))


def test_tokens_follow_rounded_state() -> None:
    tokens = (Difference("tokens", Level.LARGE, count=1, total=4, integral=True),)
    assert Gap(tokens, StateDifference(Level.SMALL, other=9)).level is Level.SMALL
    assert Gap(tokens).level is Level.LARGE
    exact = (Difference("tokens", Level.LARGE, count=1, total=4, integral=True, exact=True),)
    assert Gap(exact, StateDifference(Level.SMALL, other=9)).level is Level.LARGE, "not those that none can reach"


def test_a_run_is_as_bad_where_it_differs_by_as_much() -> None:
    tiny = Gap((Difference("logits", Level.SMALL, max_abs=0.001, scale=1.0, count=3, total=9),))
    assert StepRecord(replayed=LARGE).as_bad(LARGE) and not StepRecord(replayed=LARGE).as_bad(SMALL)
    assert StepRecord(replayed=SMALL).as_bad(SMALL) and not StepRecord(replayed=SMALL).as_bad(tiny)
    assert StepRecord(replayed=STATE).as_bad(STATE) and not StepRecord(replayed=STATE).as_bad(EQUAL)
