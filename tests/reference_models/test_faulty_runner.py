"""Faults of the runner leave results as they are: every step gives what the sound engine gives."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cudagraph_doctor.reference_models.engine import ReferenceEngine
from cudagraph_doctor.reference_models.faulty_runner import PLANTED

BATCHES = (3, 4, 5, 8, 16, 1, 7, 2, 15, 6, 12, 3, 4, 5, 7, 8)


def logits(engine: ReferenceEngine) -> list[torch.Tensor]:
    engine.graphs(True)
    engine.reset()
    return [engine.step(i, n)["logits"] for i, n in enumerate(BATCHES)]


@pytest.mark.parametrize("name", PLANTED)
@pytest.mark.parametrize("twin", [False, True])
def test_results_are_right(world: Any, name: str, twin: bool) -> None:
    if name == "updated-each-step" and world.device != "cuda":
        pytest.skip("it updates a real executable graph: needs a CUDA GPU")
    found, wanted = logits(PLANTED[name][twin](*world.model)), logits(ReferenceEngine(*world.model))
    assert [i for i, (a, b) in enumerate(zip(found, wanted, strict=True)) if world.differs(a, b)] == []
