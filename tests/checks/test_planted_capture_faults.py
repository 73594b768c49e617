"""Every planted capture fault is named with its line, module and rule; every clean twin stays silent."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from cudagraph_doctor.findings import Outcome, Status
from cudagraph_doctor.graph.cuda import CudaBackend
from cudagraph_doctor.reference_models.capture_faults import CAPTURE_FAULTS

EMULATED = [name for name, fault in CAPTURE_FAULTS.items() if fault.emulated]
ONLY_ON_A_GPU = [name for name, fault in CAPTURE_FAULTS.items() if not fault.emulated]


def load_recorder() -> ModuleType:
    file = Path(__file__).resolve().parents[1] / "record_capture_faults.py"
    spec = importlib.util.spec_from_file_location("record_capture_faults", file)
    assert spec and spec.loader
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


recorder = load_recorder()


def check_silent(outcome: Outcome) -> None:
    """Nothing above a note, and something was judged."""
    assert [finding.message for finding in outcome.findings if finding.severity.rank > 0] == []
    assert outcome.status is Status.PASSED, outcome.reason


@pytest.mark.parametrize("name", EMULATED)
def test_emulated_fault_is_named(name: str) -> None:
    score = recorder.score(name, recorder.watched(name, False, "emulated"))
    assert score.right, score


@pytest.mark.parametrize("name", EMULATED)
def test_every_finding_has_a_fix_and_shows_the_line(name: str) -> None:
    for finding in recorder.watched(name, False, "emulated").findings:
        assert finding.fix
        assert finding.location is not None and f"# planted: {name} " in finding.location.code


@pytest.mark.parametrize("name", CAPTURE_FAULTS)
def test_emulated_twin_is_silent(name: str) -> None:
    check_silent(recorder.watched(name, True, "emulated"))


@pytest.mark.parametrize("name", ONLY_ON_A_GPU)
def test_what_emulation_cannot_see_is_said(name: str) -> None:
    outcome = recorder.watched(name, False, "emulated")
    check_silent(outcome)
    said = " ".join(outcome.not_checked)
    assert all(word in said for word in NOT_CHECKED[name]), said


NOT_CHECKED = {
    "cuda-malloc": ["cudaMalloc"],
    "library-synchronize": ["libraries", "synchronisation"],
    "other-thread-pinned": ["other threads"],
    "graph-collected": ["graphs that are destroyed"],
    "compile-not-warmed": ["torch.compile"],
    "solver-not-warmed": ["solver"],
}
"""What is said of each."""


def test_what_is_recorded_of_a_fault() -> None:
    told = recorder.asked("item", "emulated")
    assert [tool for tool in told if told[tool]["fault"]["line"]] == list(recorder.TOOLS)
    assert {told[tool]["twin"]["status"] for tool in told} == {"passed"}


def test_each_fault_is_told_when_its_last_part_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "plain", lambda name: {"raised": name})
    monkeypatch.setattr(recorder, "_asked_elsewhere", lambda name: dict.fromkeys(recorder.TOOLS, name))
    monkeypatch.setattr(recorder, "_asked_as_a_user", lambda name, twin, tool: (name, twin, tool))
    found: dict[str, Any] = {}
    recorder.record(["item", "solver-not-warmed"], 2, found.__setitem__)
    assert found["item"] == {"plain": {"raised": "item"}, **dict.fromkeys(recorder.TOOLS, "item")}
    name = "solver-not-warmed"
    assert found[name] == {
        "plain": {"raised": name},
        **{tool: {"fault": (name, False, tool), "twin": (name, True, tool)} for tool in recorder.TOOLS},
    }


def test_a_process_that_dies_is_recorded_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    died = subprocess.CompletedProcess([], -11, "", "a segmentation fault in /tmp/x")
    monkeypatch.setattr(recorder, "_run", lambda *_: died)
    told = recorder._asked_elsewhere("item")
    assert [told[tool]["fault"]["status"] for tool in recorder.TOOLS] == ["errored", "errored"]
    assert "exit -11" in str(told) and "/tmp" not in str(told)


def test_what_was_recorded_before_stays(tmp_path: Path) -> None:
    facts, before = {"torch": "2", "device": "a GPU"}, tmp_path / "recorded.json"
    names = list(CAPTURE_FAULTS)[:3]
    assert list(recorder.merged({names[2]: {}}, facts, before)["faults"]) == [names[2]]
    before.write_text(json.dumps({**facts, "faults": {names[1]: {"old": 1}, names[2]: {"old": 1}, "gone": {}}}))
    merged = recorder.merged({names[0]: {}, names[2]: {"new": 1}}, facts, before)
    assert merged == {**facts, "faults": {names[0]: {}, names[1]: {"old": 1}, names[2]: {"new": 1}}}
    with pytest.raises(ValueError, match="record all faults anew"):
        recorder.merged({names[0]: {}}, {**facts, "torch": "3"}, before)
    assert set(recorder.merged(dict.fromkeys(CAPTURE_FAULTS), {**facts, "torch": "3"}, before)["faults"]) == set(
        CAPTURE_FAULTS
    )


def test_no_path_of_the_machine_is_recorded() -> None:
    assert re.findall(r"\B/(?:tmp|work|opt|root|home|usr)\b", recorder.RECORDED.read_text()) == []


@pytest.fixture(autouse=True)
def new_capture_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream of captures is none of the fault's own: torch hands out 32 of them in turn."""
    monkeypatch.setattr(torch.cuda.graph, "default_capture_stream", None)


def on_a_gpu(name: str, twin: bool, tool: str) -> Any:
    if reason := CudaBackend.why_unusable():
        pytest.skip(reason)
    if CAPTURE_FAULTS[name].first_use:
        return recorder.as_a_user(name, twin, tool)
    with recorder.without_cupti() if tool == "without CUPTI" else nullcontext():
        return recorder.watched(name, twin, "cuda")


@pytest.mark.gpu
@pytest.mark.parametrize("tool", recorder.TOOLS)
@pytest.mark.parametrize("name", CAPTURE_FAULTS)
def test_fault_is_named_on_a_gpu(name: str, tool: str) -> None:
    outcome = on_a_gpu(name, False, tool)
    score = recorder.score(name, outcome)
    if tool == "without CUPTI" and CAPTURE_FAULTS[name].needs_cupti:
        assert score.found and "the exact CUDA call" in " ".join(outcome.not_checked), score
    else:
        assert score.right, score


@pytest.mark.gpu
@pytest.mark.parametrize("tool", recorder.TOOLS)
@pytest.mark.parametrize("name", CAPTURE_FAULTS)
def test_twin_is_silent_on_a_gpu(name: str, tool: str) -> None:
    check_silent(on_a_gpu(name, True, tool))
