"""vLLM's lists: those that its threads print, and what becomes of them."""

from __future__ import annotations

from typing import Any

import pytest

from cudagraph_doctor.audit import coverage
from cudagraph_doctor.audit.coverage import Kind
from cudagraph_doctor.audit.engines import vllm
from cudagraph_doctor.audit.engines.rule import Asked
from cudagraph_doctor.audit.fields import Fields
from cudagraph_doctor.audit.keys import Configuration, Mode, Served
from cudagraph_doctor.errors import UsageError


def read(rule: str = "vllm-57355", **options: Any) -> Configuration:
    return vllm.read(Fields("f", options), Asked(rule))


def gaps(made: Configuration) -> dict[Kind, tuple[int, ...]]:
    return {gap.kind: gap.requests for keys in made.sets for gap in coverage.gaps(keys)}


@pytest.mark.parametrize("rule", [rule.name for rule in vllm.RULES])
def test_the_grid(rule: str) -> None:
    # The default list for 256 requests that many logs show: 1, 2, 4, then steps of 8, and of 16 from 256 on.
    [keys] = read(rule, max_num_seqs=256).sets
    assert keys.piecewise[:6] == (1, 2, 4, 8, 16, 24)
    assert keys.piecewise[34:37] == (256, 272, 288)
    assert (keys.piecewise[-1], len(keys.piecewise)) == (512, 51)
    assert keys.full[-1] == 256


def test_42_tokens_truncated_to_40() -> None:
    # vllm-project/vllm#54933
    options: dict[str, Any] = {"max_num_seqs": 6, "speculative_config": {"num_speculative_tokens": 6}}
    made = read("vllm-50488", **options, compilation_config={"max_cudagraph_capture_size": 42})
    assert made.sets[0].full == (7, 14, 21, 28, 35)
    assert gaps(made) == {Kind.SPECULATIVE: (6,)}
    assert made.sets[0].serve(42) == Served(Mode.EAGER)
    assert "truncated to 40" in made.untidy[0]
    assert gaps(read("vllm-50488", **options)) == {}, "without the scalar 42 is a key"


def test_a_limit_in_tokens_computed_in_requests() -> None:
    # 32 requests and 16 drafts: 544 tokens, which no default grid reaches.
    made = read("vllm-50488", max_num_seqs=32, speculative_config={"num_speculative_tokens": 16})
    assert gaps(made) == {Kind.SPECULATIVE: (31, 32)}
    explicit = read(
        max_num_seqs=32,
        speculative_config={"num_speculative_tokens": 16},
        compilation_config={"cudagraph_capture_sizes": [17 * n for n in range(1, 33)]},
    )
    assert gaps(explicit) == {}


def test_sizes_that_fit_no_whole_requests() -> None:
    made = read(
        max_num_seqs=8,
        speculative_config={"num_speculative_tokens": 2},
        compilation_config={"cudagraph_capture_sizes": [1, 2, 4, 8, 16]},
    )
    assert made.sets[0].full == (3, 6, 9), "18 is above the largest size given"
    assert gaps(made) == {Kind.SPECULATIVE: (4, 5, 6, 7, 8)}
    assert made.sets[0].serve(8).mode is Mode.PIECEWISE, "8 tokens are no whole requests"


def test_the_limit_off_the_grid_is_piecewise() -> None:
    # vllm-project/vllm#57355: 97 to 100
    assert gaps(read("vllm-50488", max_num_seqs=100)) == {Kind.PIECEWISE: (97, 98, 99, 100)}
    assert gaps(read("vllm-57355", max_num_seqs=100)) == {}


def test_above_the_ceiling() -> None:
    assert gaps(read(max_num_seqs=600)) == {Kind.ABOVE: tuple(range(513, 601))}


@pytest.mark.parametrize(
    ("mode", "full", "piecewise"),
    [
        ("FULL_AND_PIECEWISE", (1, 2, 4), (1, 2, 4, 8)),
        ("FULL_DECODE_ONLY", (1, 2, 4), ()),
        ("FULL", (1, 2, 4, 8), ()),
        ("PIECEWISE", (), (1, 2, 4, 8)),
        ("none", (), ()),
    ],
)
def test_modes(mode: str, full: tuple[int, ...], piecewise: tuple[int, ...]) -> None:
    made = read(max_num_seqs=4, compilation_config={"cudagraph_capture_sizes": [8, 4, 2, 1], "cudagraph_mode": mode})
    assert (made.sets[0].full, made.sets[0].piecewise) == (full, piecewise)
    assert bool(made.turned_off) == (mode == "none")
    assert bool(made.mixed_uncovered) == (mode == "FULL_DECODE_ONLY")


def test_full_graphs_of_mixed_steps_are_of_use_above_the_limit() -> None:
    graph = {"cudagraph_capture_sizes": [4, 8, 16], "cudagraph_mode": "FULL"}
    assert coverage.unreachable(read(max_num_seqs=4, compilation_config=graph).sets[0]) == ()


def test_piecewise_on_purpose_is_no_gap() -> None:
    assert gaps(read(max_num_seqs=8, compilation_config={"cudagraph_mode": "PIECEWISE"})) == {}


@pytest.mark.parametrize(
    ("options", "adapters"),
    [
        ({}, ()),
        ({"enable_lora": True, "max_loras": 4}, (0, 5)),
        ({"enable_lora": True, "max_loras": 4, "specialize_active_lora": True}, (0, 1, 2, 4, 5)),
        ({"enable_lora": True, "max_loras": 4, "compilation_config": {"cudagraph_specialize_lora": False}}, ()),
    ],
)
def test_adapters(options: dict[str, Any], adapters: tuple[int, ...]) -> None:
    [keys] = read(max_num_seqs=8, **options).sets
    assert keys.adapters == adapters
    assert coverage.adapters_without_key(keys) == ()


def test_max_num_batched_tokens_is_a_key_and_a_bound() -> None:
    assert read(max_num_seqs=256, max_num_batched_tokens=100).sets[0].piecewise[-2:] == (96, 100)
    made = read(max_num_seqs=8, max_num_batched_tokens=8, compilation_config={"cudagraph_capture_sizes": [8, 16]})
    assert made.sets[0].piecewise == (8,)
    assert "16: above max_num_batched_tokens (8), dropped" in made.untidy


def test_written_as_json_and_with_dashes() -> None:
    options: dict[str, Any] = {"max-num-seqs": 2, "compilation-config": '{"cudagraph_capture_sizes": [1, 2]}'}
    made = read(**options)
    assert made.sets[0].full == (1, 2)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "does not say max_num_seqs"),
        ({"max_num_seqs": 8, "compilation_config": {"cudagraph_mode": "FULLER"}}, "no value of its kind"),
        ({"max_num_seqs": 8, "compilation_config": {"cudagraph_capture_size": [1]}}, "Did you mean"),
        ({"max_num_seqs": 8, "compilation_config": "{"}, "no value of its kind"),
        (
            {
                "max_num_seqs": 8,
                "compilation_config": {"cudagraph_capture_sizes": [8], "max_cudagraph_capture_size": 16},
            },
            "vLLM refuses this",
        ),
    ],
)
def test_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read(**options)
