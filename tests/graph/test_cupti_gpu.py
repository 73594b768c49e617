"""What CUPTI tells while a real graph is captured, and when it does not."""

from __future__ import annotations

import importlib.util

import pytest
import torch

from cudagraph_doctor.graph.cupti import Unavailable, node_creations

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
    pytest.mark.skipif(importlib.util.find_spec("cupti") is None, reason="needs cupti-python"),
]


def test_each_node_once_and_none_after_the_block() -> None:
    x, heard = torch.zeros(4, device="cuda"), list[int]()

    def capture() -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        with torch.cuda.graph(graph):
            x.add_(1).mul_(3).sub_(1)
        return graph

    with node_creations(lambda: heard.append(1)):
        graph = capture()
        assert len(heard) == 3
        graph.instantiate()
        graph.replay()
        print(f"{len(heard) - 3} when instantiated and replayed")
    before = len(heard)
    capture()
    assert len(heard) == before and x.eq(2).all()


def test_one_subscriber_a_process() -> None:
    def nothing() -> None:
        pass

    with (
        node_creations(nothing),
        pytest.raises(Unavailable, match="MULTIPLE_SUBSCRIBERS"),
        node_creations(nothing),
    ):
        pytest.fail("entered")
    with node_creations(nothing):
        pass
