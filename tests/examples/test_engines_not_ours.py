"""Loops and an engine that were not written for the doctor: clean as they are, and each of three faults in them found.

Each check runs in a process of its own, as a user's would: a faulty engine may take its process down. nano-vllm is no
part of this project; its test wants it on PYTHONPATH. Where `inputs` may give one of several rules, what the graph
reads is wrong in several ways, and the device's allocator or the order of the steps decides which is seen.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from cudagraph_doctor.findings import Report
from cudagraph_doctor.report.json import load

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Example:
    """A target of `examples/`, and the module beside this file that plants faults into it."""

    spec: str
    faults: str
    culprits: dict[str, str]
    """Fault -> what the name of the accused has to contain."""
    rules: dict[str, frozenset[str]]
    """Fault -> the rules that `inputs` may give it."""
    needs: str = "torch"
    """A module that must be there."""


GPT_FAST = Example(
    "examples/gpt_fast_style.py",
    "tests/examples/gpt_fast_faults.py",
    {"input_pos": "input_pos", "temperature": "parameter", "caches": "_cache"},
    {
        "input_pos": frozenset({"CGD301"}),
        "temperature": frozenset({"CGD320"}),
        "caches": frozenset({"CGD306", "CGD307"}),  # freed; on a GPU the new caches may get its memory
    },
)
TRANSFORMERS = Example(
    "examples/transformers_loop.py",
    "tests/examples/transformers_faults.py",
    {"position_ids": "position_ids", "input_ids": "input_ids", "lm_head": "lm_head"},
    {
        "position_ids": frozenset({"CGD305"}),
        "input_ids": frozenset({"CGD305"}),
        "lm_head": frozenset({"CGD308"}),
    },
    needs="transformers",
)
NANO_VLLM = Example(
    "examples/nano_vllm_target.py",
    "tests/examples/nano_vllm_faults.py",
    {
        "slot_mapping_not_copied": "slot_mapping",
        "slot_mapping_tail_stale": "slot_mapping",
        "positions_rebound": "positions",
    },
    {
        "slot_mapping_not_copied": frozenset({"CGD301"}),
        "slot_mapping_tail_stale": frozenset({"CGD303", "CGD309"}),  # stale slots are other requests' slots
        "positions_rebound": frozenset({"CGD305"}),
    },
    needs="nanovllm",
)
EXAMPLES = (GPT_FAST, TRANSFORMERS, NANO_VLLM)
FAULTS = [(example, fault) for example in EXAMPLES for fault in example.culprits]
FREED = "freed memory"
"""What `inputs` calls memory that has no name any more."""


def checked(check: str, example: Example, backend: str, tmp_path: Path, fault: str = "") -> tuple[int, Report, str]:
    """Exit code, report, and all that was printed."""
    if backend == "cuda":
        import torch

        if not torch.cuda.is_available():
            pytest.skip("needs a CUDA GPU")
    if importlib.util.find_spec(example.needs) is None:
        pytest.skip(f"{example.needs} is not installed")
    file = tmp_path / "report.json"
    command = [sys.executable, "-m", "cudagraph_doctor", check, example.faults if fault else example.spec]
    command += ["--backend", backend, "--format", "terminal", "--format", f"json={file}"]
    command += ["--target-arg", f"fault={fault}"] if fault else []
    done = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, timeout=600, check=False)
    text = f"{done.stdout}\n{done.stderr}"
    assert file.exists(), text
    return done.returncode, load(file), text


def assert_clean(check: str, example: Example, backend: str, tmp_path: Path) -> None:
    """Exit code 0, judged, and nothing above a note."""
    code, report, text = checked(check, example, backend, tmp_path)
    assert code == 0, text
    assert [finding for finding in report.findings if finding.severity.rank > 0] == [], text
    assert [outcome.status.value for outcome in report.outcomes] == ["passed"], text


def assert_found(check: str, example: Example, backend: str, fault: str, tmp_path: Path) -> None:
    """Exit code 1, and the culprit by its name; of `inputs` also by its rule."""
    code, report, text = checked(check, example, backend, tmp_path, fault)
    assert code == 1, text
    accused = [
        (finding.code, f"{finding.culprit.kind} {finding.culprit.name}")
        for finding in report.findings
        if finding.severity.rank > 0 and finding.culprit is not None
    ]
    if check == "inputs":
        accused = [(rule, name) for rule, name in accused if rule in example.rules[fault]]
    named = [name for rule, name in accused if example.culprits[fault] in name or (rule == "CGD307" and FREED in name)]
    assert named, text


CHECKS = pytest.mark.parametrize("check", ["diff", "inputs"])


@CHECKS
def test_clean_emulated(check: str, tmp_path: Path) -> None:
    assert_clean(check, GPT_FAST, "emulated", tmp_path)


@CHECKS
@pytest.mark.parametrize("fault", GPT_FAST.culprits)
def test_fault_is_found_emulated(check: str, fault: str, tmp_path: Path) -> None:
    assert_found(check, GPT_FAST, "emulated", fault, tmp_path)


@pytest.mark.gpu
@CHECKS
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: Path(example.spec).stem)
def test_clean_on_the_gpu(check: str, example: Example, tmp_path: Path) -> None:
    assert_clean(check, example, "cuda", tmp_path)


@pytest.mark.gpu
@CHECKS
@pytest.mark.parametrize(("example", "fault"), FAULTS, ids=[f"{Path(e.spec).stem}-{fault}" for e, fault in FAULTS])
def test_fault_is_found_on_the_gpu(check: str, example: Example, fault: str, tmp_path: Path) -> None:
    assert_found(check, example, "cuda", fault, tmp_path)
