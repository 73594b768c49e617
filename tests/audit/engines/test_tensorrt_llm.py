"""TensorRT-LLM's lists, against those of its source."""

from __future__ import annotations

from typing import Any

import pytest

from cudagraph_doctor.audit import coverage
from cudagraph_doctor.audit.coverage import Kind
from cudagraph_doctor.audit.engines import tensorrt_llm
from cudagraph_doctor.audit.engines.rule import Asked
from cudagraph_doctor.audit.fields import Fields
from cudagraph_doctor.audit.keys import Configuration
from cudagraph_doctor.errors import UsageError


def read(rule: str = "", **options: Any) -> Configuration:
    return tensorrt_llm.read(Fields("f", options), Asked(rule))


def test_padded_in_steps_of_64() -> None:
    [keys] = read(max_batch_size=300, cuda_graph_config={"enable_padding": True, "max_batch_size": 300}).sets
    assert keys.full[:5] == (1, 2, 4, 8, 16)
    assert keys.full[-4:] == (128, 192, 256, 300)


def test_padded_by_powers_of_two() -> None:
    graph = {"enable_padding": True, "max_batch_size": 2048}
    [keys] = read("tensorrt-llm-5014", max_batch_size=2048, cuda_graph_config=graph).sets
    assert keys.full[-5:] == (128, 256, 512, 1024, 2048)


def test_without_padding_there_are_holes() -> None:
    [keys] = read(max_batch_size=128).sets
    assert keys.full == (*range(1, 33), 64, 128)
    assert {gap.kind: len(gap.requests) for gap in coverage.gaps(keys)} == {Kind.INSIDE: 31 + 63}


def test_sizes_above_the_executor_s_limit() -> None:
    graph: dict[str, Any] = {"batch_sizes": [1, 16, 64]}
    assert read(max_batch_size=20, cuda_graph_config=graph).sets[0].full == (1, 16)
    assert read(max_batch_size=20, cuda_graph_config=graph | {"enable_padding": True}).sets[0].full == (1, 16, 20)


def test_speculation_and_chunks() -> None:
    made = read(max_batch_size=8, speculative_config={"max_draft_len": 3}, enable_chunked_prefill=True)
    assert (made.sets[0].name, made.sets[0].width) == ("verify", 4)
    assert "enable_chunked_prefill" in made.mixed_uncovered


@pytest.mark.parametrize("options", [{"cuda_graph_config": None}, {"use_cuda_graph": False}])
def test_turned_off(options: dict[str, Any]) -> None:
    assert read(max_batch_size=8, **options).turned_off


def test_the_executor_s_default_is_said() -> None:
    assert read(cuda_graph_config={}).unknown == ("max_batch_size: the executor's default, 2048, is taken",)


@pytest.mark.parametrize(
    "graph", [{"batch_sizes": [1, 2], "max_batch_size": 4}, {"batch_size": [1]}, {"max_batch_size": -1}]
)
def test_refused(graph: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        read(max_batch_size=8, cuda_graph_config=graph)
