"""How the engines and runners of the zoo capture a graph; not a target itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

T = TypeVar("T")


def capture(step: Callable[[], T], pool: Any = None) -> tuple[torch.cuda.CUDAGraph, T]:
    """Warm `step` up on a side stream, then capture it. Returns the graph and the static outputs."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        outputs = step()
    return graph, outputs


def bucket_of(n: int, buckets: list[int]) -> int:
    """The smallest bucket that holds `n` rows."""
    return next(bucket for bucket in buckets if bucket >= n)
