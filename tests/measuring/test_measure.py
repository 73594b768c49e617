"""A target measured from end to end: emulated (correctness alone), and on a GPU (times and memory too)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cudagraph_doctor import reference_models
from cudagraph_doctor.audit.costs import CostTable
from cudagraph_doctor.errors import Inconclusive
from cudagraph_doctor.findings import Outcome, Status
from cudagraph_doctor.graph.backend import Backend
from cudagraph_doctor.measuring.measure import measure
from cudagraph_doctor.progress import Silent
from cudagraph_doctor.reference_models.key_faults import KEY_FAULTS
from cudagraph_doctor.settings import Settings

VISIBLE = [name for name, fault in KEY_FAULTS.items() if fault.emulated]


def measured(backend: Backend, form: str = "loop", *, fault: str = "", twin: bool = False, **more: int) -> Outcome:
    """The bundled model: tiny."""
    with backend.installed():
        target = reference_models.load(form, device=backend.device, fault=fault, twin=twin, preset="tiny")
        return measure(target, backend, Settings("audit", **more), Silent())  # type: ignore[arg-type]


@pytest.fixture
def emulated() -> Backend:
    from cudagraph_doctor.graph.emulated import EmulatedBackend

    return EmulatedBackend()


@pytest.fixture
def cuda() -> Iterator[Backend]:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA GPU")
    from cudagraph_doctor.graph.cuda import CudaBackend

    yield CudaBackend()
    torch.cuda.empty_cache()


def spoken(outcome: Outcome) -> list[str]:
    return [finding.code for finding in outcome.findings if finding.severity.rank > 0]


@pytest.mark.parametrize("form", ["loop", "engine"])
def test_a_sound_target_is_silent_and_has_no_made_up_numbers(form: str, emulated: Backend) -> None:
    outcome = measured(emulated, form)
    assert (outcome.status, spoken(outcome)) == (Status.PASSED, [])
    assert outcome.checked["costs"] is None
    keys = outcome.checked["measured"]["keys"]
    assert [key["size"] for key in keys] == [1, 2, 4, 8, 16]
    assert all(key["replay"] is None and key["graph_bytes"] is None and key["capture_ms"] is None for key in keys)
    assert outcome.checked["measured"]["pools"] is None
    assert "times and memory: the captures are emulated" in outcome.not_checked
    assert outcome.checked["measured"]["switching"]["visits"] > 20


def test_keys_are_left_out_before_memory_runs_out() -> None:
    from cudagraph_doctor.graph.emulated import EmulatedBackend

    class Filling(EmulatedBackend):
        def free_bytes(self) -> int:
            """Each capture takes a GiB."""
            return (10 - len(self.log.graphs)) << 30

    outcome = measured(Filling(), memory_margin=7 << 30)
    assert outcome.checked["measured"]["left_out"] == (1, 2), "the largest is captured first"
    assert [key["size"] for key in outcome.checked["measured"]["keys"]] == [4, 8, 16]
    assert any(said.startswith("keys 1, 2: not captured, for less than 7 GiB") for said in outcome.not_checked)
    with pytest.raises(Inconclusive, match="no room for the first key"):
        measured(Filling(), memory_margin=11 << 30)


@pytest.mark.parametrize("name", VISIBLE)
def test_a_planted_fault_is_found(name: str, emulated: Backend) -> None:
    outcome = measured(emulated, fault=name)
    assert spoken(outcome) == [KEY_FAULTS[name].rule]
    [finding] = [finding for finding in outcome.findings if finding.severity.rank > 0]
    assert finding.culprit and KEY_FAULTS[name].culprit in finding.culprit.name


@pytest.mark.parametrize("name", KEY_FAULTS)
def test_a_twin_is_silent(name: str, emulated: Backend) -> None:
    assert spoken(measured(emulated, fault=name, twin=True)) == []


@pytest.mark.gpu
def test_all_numbers_of_a_loop(cuda: Backend) -> None:
    outcome = measured(cuda)
    assert (outcome.status, spoken(outcome)) == (Status.PASSED, [])
    table = CostTable.from_json(outcome.checked["costs"])
    assert table.sizes == (1, 2, 4, 8, 16)
    for key in table.keys:
        assert 0 < key.replay_ms < (key.eager_ms or 0), "launches of a tiny model are all that eager waits for"
        assert key.nodes and key.capture_ms and key.instantiate_ms and key.pool_bytes
        assert key.graph_bytes is not None
    pools = outcome.checked["measured"]["pools"]
    assert pools["number"] == 1
    assert 0 < pools["as_captured"] <= sum(key.pool_bytes or 0 for key in table.keys)
    assert pools["smallest_first"] >= pools["as_captured"]


@pytest.mark.gpu
def test_an_engine_is_measured_as_far_as_it_lets_one(cuda: Backend) -> None:
    outcome = measured(cuda, "engine")
    assert (outcome.status, spoken(outcome)) == (Status.PASSED, [])
    table = CostTable.from_json(outcome.checked["costs"])
    assert table.sizes == (1, 2, 4, 8, 16)
    assert all(key.replay_ms > 0 and key.eager_ms and key.graph_bytes is None for key in table.keys)
    assert outcome.checked["measured"]["pools"]["as_captured"] > 0
    assert any(said.startswith("memory of single graphs") for said in outcome.not_checked)


@pytest.mark.gpu
@pytest.mark.parametrize("twin", [False, True])
@pytest.mark.parametrize("name", KEY_FAULTS)
def test_faults_and_twins_on_a_gpu(name: str, twin: bool, cuda: Backend) -> None:
    outcome = measured(cuda, fault=name, twin=twin)
    assert set(spoken(outcome)) == (set() if twin else {KEY_FAULTS[name].rule})
