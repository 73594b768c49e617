"""Step labels of each engine, the user's own pattern, and labels that name no step."""

from __future__ import annotations

import pytest

from cudagraph_doctor.errors import UsageError
from cudagraph_doctor.traces.labels import Stage, capture_bucket, looks_like_a_step, read, user_family


@pytest.mark.parametrize(
    ("text", "stage", "batch", "tokens", "size"),
    [
        ("execute_context_0(0)_generation_4(12)", Stage.DECODE, 4, 12, 12),
        ("execute_context_3(512_0)_generation_2(256_1)", Stage.MIXED, 2, 768, 768),
        ("execute_context_1(888_788544)_generation_0(0)", Stage.PREFILL, 0, 888, 888),
        ("execute_context_0(0)_generation_0(0)", Stage.IDLE, 0, 0, 0),
        ("execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086sqsq32sqsk55086)", Stage.DECODE, 32, 32, 32),
        (
            "execute_8192_context_9(sq8155sk8430sqsq7sqsk7)_generation_37(sq37sk3sqsq37sqsk3)",
            Stage.MIXED,
            37,
            8192,
            8192,
        ),
        ("step[DECODE bs=32]", Stage.DECODE, 32, None, 32),
        ("step[DECODE bs=8 forward_id=7]", Stage.DECODE, 8, None, 8),
        ("step[EXTEND bs=15 toks=15360]", Stage.PREFILL, 15, 15360, 15),
        ("step[TARGET_VERIFY bs=4 toks=16]", Stage.DECODE, 4, 16, 4),
        ("step[MIXED bs=4 toks=160]", Stage.MIXED, 4, 160, 4),
        ("step[IDLE bs=0]", Stage.IDLE, 0, None, 0),
        ("[Executor] _forward_step 7: 0 ctx reqs, 3 gen reqs", Stage.DECODE, 3, None, 3),
        ("[Executor] _forward_step 7: 1 ctx reqs, 64 ctx tokens, 3 gen reqs", Stage.MIXED, 3, None, 3),
        ("[Executor] _forward_step: 2 ctx reqs, 0 gen reqs", Stage.PREFILL, 0, None, 0),
        ("decode step=12 bs=3", Stage.DECODE, 3, None, 3),
        ("mixed step=2 bs=3 prefill=7", Stage.MIXED, 3, None, 3),
        ("decode step=12 bs=3 toks=6 bucket=8", Stage.DECODE, 3, 6, 6),
        ("Decode", Stage.DECODE, None, None, None),
        ("Prefill", Stage.PREFILL, None, None, None),
        ("gpu_model_runner: forward", Stage.UNKNOWN, None, None, None),
        ("scheduler.run_batch", Stage.UNKNOWN, None, None, None),
        ("ProfilerStep#134", Stage.UNKNOWN, None, None, None),
        ("decode batch_size: 5", Stage.DECODE, 5, None, 5),
    ],
)
def test_built_in(text: str, stage: Stage, batch: int | None, tokens: int | None, size: int | None) -> None:
    label = read(text)
    assert label is not None
    assert (label.stage, label.batch, label.tokens, label.size) == (stage, batch, tokens, size)


def test_numbers_and_buckets() -> None:
    label = read("decode step=12 bs=3 bucket=4")
    assert label is not None and (label.number, label.bucket, label.form) == (12, 4, "cudagraph-doctor: decode")
    label = read("decode[bs=117/128 tok=117 d=117]")
    assert label is not None and (label.family, label.batch, label.bucket) == ("ATOM", 117, 128)


def test_what_emit_nvtx_appends_is_no_part_of_a_label() -> None:
    label = read("step[DECODE bs=32], seq = 5, op_id = 77")
    assert label is not None and label.text == "step[DECODE bs=32]"


@pytest.mark.parametrize(
    "text", ["aten::mul, op_id = 7", "ncclSend", "forward", "", "{'Module': 'x'}", "redecode bs=3"]
)
def test_other_labels_name_no_step(text: str) -> None:
    assert read(text) is None


def test_some_of_these_are_worth_a_word() -> None:
    assert (
        looks_like_a_step("my decode of 4") and not looks_like_a_step("aten::copy_") and not looks_like_a_step("nccl")
    )


def test_a_number_that_is_none() -> None:
    label = read("step[DECODE bs=99999999999999999999]")
    assert label is not None and label.batch is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("capture bucket=4", (4, "")),
        ("capture_8_FULL", (8, "FULL")),
        ("capture_32_DECODE", (32, "DECODE")),
        ("capture", None),
    ],
)
def test_captures(text: str, expected: tuple[int, str] | None) -> None:
    assert capture_bucket(text) == expected


def test_own_pattern() -> None:
    own = user_family(r"^gen (?P<batch>\d+)/(?P<bucket>\d+)$")
    label = read("gen 3/4", own)
    assert label is not None and (label.stage, label.batch, label.bucket, label.family) == (
        Stage.DECODE,
        3,
        4,
        "--step-pattern",
    )
    staged = user_family(r"^(?P<stage>\w+) (?P<tokens>\d+) of (?P<batch>\d+)$")
    label = read("prefill 12 of 3", staged)
    assert label is not None and (label.stage, label.size) == (Stage.PREFILL, 12)
    assert read("decode step=1 bs=2", own) is not None  # the built-in ones still hold


def test_own_pattern_that_is_none() -> None:
    with pytest.raises(UsageError, match="is no regular expression"):
        user_family("(")
    with pytest.raises(UsageError, match='a group "size"'):
        user_family("(?P<size>1)")
