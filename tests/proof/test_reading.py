"""Names for the addresses in a graph."""

from __future__ import annotations

import torch

from cudagraph_doctor.graph.backend import LiveGraph
from cudagraph_doctor.graph.model import Region
from cudagraph_doctor.proof.reading import regions_of
from cudagraph_doctor.proof.subject import Held


def test_memory_is_named_by_its_kind() -> None:
    tensors = {"slots": torch.zeros(2), "w": torch.zeros(2), "cache": torch.zeros(2), "none": torch.zeros(0)}
    regions = regions_of(Held(LiveGraph(0, lambda: None), tensors, frozenset({"slots"})), {"w"})  # type: ignore[arg-type]
    assert [regions.find(tensors[name].data_ptr() + 4) for name in ("slots", "w", "cache")] == [
        Region("input", "slots", 4),
        Region("weight", "w", 4),
        Region("root", "cache", 4),
    ]
