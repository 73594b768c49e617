"""What is noted of tensors and of replays."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cudagraph_doctor.graph.emulated import EmulatedBackend
from cudagraph_doctor.progress import Silent
from cudagraph_doctor.proof.arms import Arms
from cudagraph_doctor.proof.start import discover, planned, subject_of
from cudagraph_doctor.replays.collect import Watched, Watcher, content, on_host, unequal
from cudagraph_doctor.replays.model import SMALL_BYTES, Span
from cudagraph_doctor.settings import Settings

Inputs = dict[str, torch.Tensor]


class Loop:
    """One input is staged, one is not, one is put in the other's place at full batches."""

    buckets = (4,)

    def __init__(self, device: str) -> None:
        self.device = device
        self.head = torch.nn.Linear(1, 1, bias=False, device=device)
        self.kept = torch.zeros(8, device=device)

    def next_inputs(self, step: int, n: int) -> Inputs:
        rows = torch.arange(n, device=self.device).float() + step
        return {"staged": rows, "forgotten": rows + 1, "rebound": rows + 2}

    def static_inputs(self, bucket: int) -> Inputs:
        return {name: torch.zeros(bucket, device=self.device) for name in ("staged", "forgotten", "rebound")}

    def update(self, static: Inputs, fresh: Inputs) -> None:
        n = len(fresh["staged"])
        static["staged"][:n].copy_(fresh["staged"])
        static["rebound"] = torch.zeros_like(static["rebound"])
        static["rebound"][:n].copy_(fresh["rebound"])

    def forward(self, inputs: Inputs) -> Inputs:
        total = inputs["staged"] + inputs["forgotten"] + inputs["rebound"]
        self.kept[: len(total)].copy_(total)
        return {"y": self.head(total.unsqueeze(1))}

    def state(self) -> Inputs:
        return {"kept": self.kept}

    def reset(self) -> None:
        self.kept.zero_()


def watched() -> Watched:
    backend = EmulatedBackend()
    with backend.installed(), torch.no_grad():
        target: Any = Loop(backend.device)
        subject = subject_of(target, backend)
        _, plan = planned(subject, Settings(check="inputs", batch_sizes=(4, 3, 4), steps=3))
        arms = Arms(subject, backend)
        discover(arms, plan, Silent(), 1)
        return Watcher(arms, target).watch(plan)


@pytest.fixture(scope="module")
def seen() -> Watched:
    return watched()


def test_regions_have_names_kinds_and_readers(seen: Watched) -> None:
    kinds = {region.name: region.kind for region in seen.regions.values()}
    assert kinds == {
        "staged": "input",
        "forgotten": "input",
        "rebound": "input",
        "head.weight": "weight",
        "kept": "state",
    }
    assert all(region.readers for region in seen.regions.values())
    assert [replay.rows for replay in seen.replays] == [4, 3, 4] and len(seen.graphs) == 1
    assert seen.pointers > len(kinds) and not seen.unnamed


def test_each_replay_tells_what_was_held_and_what_should_have_been(seen: Watched) -> None:
    region = next(region for region in seen.regions.values() if region.name == "forgotten")
    readings = [reading for reading in seen.readings if reading.region == region.id]
    assert [reading.changed for reading in readings] == [None, False, False]
    assert all(reading.unequal for reading in readings)
    assert readings[1].expected is not None and readings[1].expected.high == 4.0 and readings[1].held.high != 4.0


def test_the_live_tensor_is_told_where_it_is_another(seen: Watched) -> None:
    region = next(region for region in seen.regions.values() if region.name == "rebound")
    live = [reading.live for reading in seen.readings if reading.region == region.id]
    assert [one.high if one else None for one in live] == [5.0, 5.0, 7.0]
    addresses = [reading.live_address for reading in seen.readings if reading.region == region.id]
    assert all(addresses) and region.address not in addresses


def test_who_wrote_it_last(seen: Watched) -> None:
    region = next(region for region in seen.regions.values() if region.name == "staged")
    written = [reading.written for reading in seen.readings if reading.region == region.id]
    assert written[0] is None and written[2] is not None
    assert written[2].step == 2 and written[2].location.function.endswith("update")


def test_a_content_is_hashed_and_kept_if_it_is_small() -> None:
    small = content(torch.tensor([1.5, float("nan"), -2.0], dtype=torch.bfloat16))
    assert (small.size, small.dtype, small.shape, small.low, small.high) == (6, "bfloat16", (3,), -2.0, 1.5)
    assert small.data is not None and content(torch.tensor([1.5, 0.0])).hash != content(torch.tensor([0.0, 1.5])).hash
    assert content(torch.zeros(SMALL_BYTES + 1, dtype=torch.uint8)).data is None
    assert content(torch.zeros(0)).low is None and content(torch.full((2,), float("nan"))).high is None
    assert content(torch.tensor(True)).shape == () and content(torch.tensor([1j])).low is None


def test_what_is_small_comes_to_the_host_in_one_transfer(monkeypatch: pytest.MonkeyPatch) -> None:
    transfers: list[int] = []
    to_host = torch.Tensor.cpu

    def noted(tensor: torch.Tensor) -> torch.Tensor:
        transfers.append(tensor.nbytes)
        return to_host(tensor)

    monkeypatch.setattr(torch.Tensor, "cpu", noted)
    tensors = [
        torch.arange(5, dtype=torch.int64),
        torch.tensor(True),
        None,
        torch.randn(3, 4).t(),  # not contiguous
        torch.empty(0, 2, dtype=torch.float64),
        torch.randn(7).to(torch.bfloat16),
        torch.zeros(1 << 20, dtype=torch.int16),  # large: by itself
        torch.tensor([1 + 2j]),
    ]
    found = on_host(tensors)
    for copied, tensor in zip(found, tensors, strict=True):
        assert (copied is None) == (tensor is None)
        if copied is not None and tensor is not None:
            assert copied.dtype == tensor.dtype and torch.equal(copied, tensor)
    assert sorted(transfers) == [48 + 16 + 48 + 0 + 16 + 16, 1 << 21]
    assert on_host([]) == [] and on_host([None]) == [None]


def test_unequal_stretches_are_whole_elements() -> None:
    a, b = torch.tensor([1, 2, 3, 4], dtype=torch.int32), torch.tensor([1, 9, 9, 4], dtype=torch.int32)
    assert unequal(a, b) == (Span(4, 12),) and unequal(a, None) == () and unequal(a, a) == ()
