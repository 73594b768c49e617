"""The emulation in place, and the short form of a capture."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from cudagraph_doctor.graph.emulated import EmulatedBackend

DEVICE = "cpu:0"


@pytest.fixture
def backend() -> Iterator[EmulatedBackend]:
    """An emulated backend whose stand-ins are in place."""
    backend = EmulatedBackend()
    with backend.installed():
        yield backend


@pytest.fixture
def capture(backend: EmulatedBackend) -> Callable[[Callable[[], object]], Any]:
    """Capture a function into a new graph."""

    def captured(step: Callable[[], object]) -> Any:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        return graph

    return captured
