"""Every planted fault of the reference model is found, with its rule and its culprit; every clean twin stays silent."""

from __future__ import annotations

import pytest

from cudagraph_doctor import reference_models
from cudagraph_doctor.checks import eager_diff
from cudagraph_doctor.findings import Finding, Outcome, Proof, Status
from cudagraph_doctor.graph.backend import Backend
from cudagraph_doctor.progress import Silent
from cudagraph_doctor.reference_models.faults import FAULTS
from cudagraph_doctor.settings import Settings

PLANTED = [(name, form) for name, fault in FAULTS.items() for form in fault.forms]
VISIBLE = [(name, form) for name, form in PLANTED if FAULTS[name].emulated]
SEEDS = range(5)


def diff(backend: Backend, name: str, form: str, *, twin: bool, seed: int) -> Outcome:
    """`diff` of one variant of the tiny reference model; two buckets are enough, an engine chooses by batch size."""
    buckets = (4, 16) if form == "loop" else ()
    with backend.installed():
        target = reference_models.load(form, device=backend.device, fault=name, twin=twin, preset="tiny", seed=seed)
        return eager_diff.run(target, backend, Settings(check="diff", seed=seed, steps=4, buckets=buckets), Silent())


def check_found(name: str, outcome: Outcome) -> Finding:
    """One root cause, and the right one."""
    fault = FAULTS[name]
    spoken = [finding for finding in outcome.findings if finding.severity.rank > 0]
    assert outcome.status is Status.FOUND
    assert [(f.code, f.proof) for f in spoken] == [(fault.rule, spoken[0].proof)], [f.message for f in spoken]
    assert spoken[0].proof is not Proof.SUSPECTED
    culprit = spoken[0].culprit
    assert culprit is not None and fault.culprit in f"{culprit.name}, {culprit.detail}"
    assert spoken[0].fix
    return spoken[0]


def check_silent(outcome: Outcome) -> None:
    """Nothing above a note, and something was judged."""
    assert [f.message for f in outcome.findings if f.severity.rank > 0] == []
    assert outcome.status is Status.PASSED


@pytest.mark.parametrize(("name", "form"), VISIBLE)
def test_emulated_fault_is_found(name: str, form: str, emulated: Backend) -> None:
    check_found(name, diff(emulated, name, form, twin=False, seed=0))


@pytest.mark.parametrize(("name", "form"), PLANTED)
def test_emulated_twin_is_silent(name: str, form: str, emulated: Backend) -> None:
    check_silent(diff(emulated, name, form, twin=True, seed=0))


@pytest.mark.parametrize("name", [name for name, fault in FAULTS.items() if not fault.emulated])
def test_what_emulation_cannot_see_is_said(name: str, emulated: Backend) -> None:
    outcome = diff(emulated, name, FAULTS[name].forms[0], twin=False, seed=0)
    check_silent(outcome)
    assert any("needs a GPU" in sentence for sentence in outcome.not_checked)


@pytest.mark.gpu
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("name", "form"), PLANTED)
def test_fault_is_found_on_a_gpu(name: str, form: str, seed: int, cuda: Backend) -> None:
    check_found(name, diff(cuda, name, form, twin=False, seed=seed))


@pytest.mark.gpu
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("name", "form"), PLANTED)
def test_twin_is_silent_on_a_gpu(name: str, form: str, seed: int, cuda: Backend) -> None:
    check_silent(diff(cuda, name, form, twin=True, seed=seed))
