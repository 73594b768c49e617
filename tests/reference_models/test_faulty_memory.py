"""Graphs outlive or share memory: on a GPU replays read another owner's bytes; emulated, all memory has one owner."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cudagraph_doctor.reference_models.faulty_memory import PLANTED, TABLE, TRIES, placed_at

GPU = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")]


def wrong(engine: Any, world: Any) -> list[bool]:
    """Which steps by graph are not eager's."""
    steps: list[list[torch.Tensor]] = []
    for on in (True, False):
        engine.graphs(on)
        engine.reset()
        steps.append([engine.step(i, n)["logits"] for i, n in enumerate([4, 4, 3, 4, 1, 2, 8, 3])])
    return [world.differs(graph, eager) for graph, eager in zip(*steps, strict=True)]


@pytest.mark.parametrize("name", PLANTED)
def test_the_twin_is_sound(name: str, world: Any) -> None:
    assert not any(wrong(PLANTED[name][1](*world.model), world))


@pytest.mark.parametrize("name", PLANTED)
def test_the_fault(name: str, world: Any) -> None:
    expected = {
        "captured-buffer-freed": [False] * 8,  # as long as nobody asks for memory
        "captured-buffer-reused": [True] * 8,  # counts are no biases
        "output-in-shared-pool": [True] * 8,
    }
    found = wrong(PLANTED[name][0](*world.model), world)
    assert found == (expected[name] if world.device == "cuda" else [False] * 8)


@pytest.mark.parametrize("world", [pytest.param("cuda", marks=GPU)], indirect=True)
@pytest.mark.parametrize("twin", [False, True])
def test_who_asks_for_memory_is_given_the_freed_table(world: Any, twin: bool) -> None:
    engine = PLANTED["captured-buffer-freed"][twin](*world.model)
    owners = [torch.full((TABLE,), float("nan"), device="cuda") for _ in range(8)]
    assert bool(engine.step(0, 4)["logits"].isnan().any()) != twin
    del owners


def test_a_tensor_is_placed_where_it_shall_be() -> None:
    made = [torch.zeros(4) for _ in range(TRIES + 1)]
    tensors = iter(made)
    assert placed_at(made[3].data_ptr(), lambda: next(tensors)) is made[3]
    tensors = iter(made)
    with pytest.raises(RuntimeError, match=f"does not give the memory at .* to any of {TRIES} tensors"):
        placed_at(made[TRIES].data_ptr(), lambda: next(tensors))


@pytest.mark.parametrize("world", [pytest.param("cuda", marks=GPU)], indirect=True)
def test_the_history_lies_where_the_graphs_read(world: Any) -> None:
    engine: Any = PLANTED["captured-buffer-reused"][0](*world.model)
    engine.history.fill_(float("nan"))
    assert bool(engine.step(0, 4)["logits"].isnan().any())


@pytest.mark.parametrize("name", ["captured-buffer-freed", "captured-buffer-reused"])
@pytest.mark.parametrize("twin", [False, True])
def test_the_table_is_gone_after_the_captures(world: Any, name: str, twin: bool) -> None:
    engine: Any = PLANTED[name][twin](*world.model)
    assert (engine.table() is not None) == twin
