"""SGLang's lists, against those of its source."""

from __future__ import annotations

from typing import Any

import pytest

from cudagraph_doctor.audit import coverage
from cudagraph_doctor.audit.engines import sglang
from cudagraph_doctor.audit.engines.rule import Asked
from cudagraph_doctor.audit.fields import Fields
from cudagraph_doctor.audit.keys import Configuration
from cudagraph_doctor.errors import UsageError


def read(rule: str = "", **options: Any) -> Configuration:
    return sglang.read(Fields("f", options), Asked(rule))


def test_the_grid() -> None:
    [keys] = read(cuda_graph_max_bs=640, max_running_requests=640).sets
    assert keys.full[:7] == (1, 2, 4, 8, 12, 16, 24)
    assert keys.full[-8:] == (464, 480, 496, 512, 544, 576, 608, 640)
    assert keys.name == "decode"


def test_the_maximum_itself() -> None:
    options = {"cuda_graph_max_bs": 100, "max_running_requests": 100}
    assert read("sglang-10372", **options).sets[0].full[-1] == 96
    assert read("sglang-21005", **options).sets[0].full[-2:] == (96, 100)


def test_draft_and_verify_sets_are_apart() -> None:
    made = read(
        cuda_graph_max_bs=40,
        max_running_requests=64,
        speculative_algorithm="EAGLE",
        speculative_num_draft_tokens=4,
        speculative_num_steps=3,
        speculative_eagle_topk=2,
    )
    assert {keys.name: keys.width for keys in made.sets} == {"verify": 4, "draft": 2, "draft extend": 4}
    assert made.sets[0].full[:10] == (1, 2, 3, 4, 5, 6, 7, 8, 10, 12)
    assert all(coverage.gaps(keys)[0].requests == tuple(range(41, 65)) for keys in made.sets)


def test_padding_off_captures_all() -> None:
    [keys] = read(cuda_graph_max_bs=6, max_running_requests=6, disable_cuda_graph_padding=True).sets
    assert keys.full == (1, 2, 3, 4, 5, 6) and not keys.padded
    [few] = read(cuda_graph_bs=[1, 4], max_running_requests=4, disable_cuda_graph_padding=True).sets
    assert coverage.gaps(few)[0].requests == (2, 3)


def test_the_pool_of_requests_takes_the_place_of_larger_keys() -> None:
    assert read(cuda_graph_bs=[1, 8, 64], max_running_requests=20).sets[0].full == (1, 8, 20)


def test_the_limit_is_independent_of_the_largest_key() -> None:
    # sgl-project/sglang#33483
    [keys] = read(cuda_graph_max_bs=160, max_running_requests=4096).sets
    assert coverage.gaps(keys)[0].requests[0] == 161


def test_turned_off() -> None:
    assert read(disable_cuda_graph=True, max_running_requests=4).turned_off == "disable_cuda_graph"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_running_requests": 8}, "by the GPU's memory"),
        ({"cuda_graph_max_bs": 8}, "how many requests run at most"),
        ({"cuda_graph_max_bs": 8, "max_running_requests": 8, "cuda_graph_max": 3}, "does not know"),
    ],
)
def test_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read(**options)
