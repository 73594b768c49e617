"""Every module has its tests at the same path; where it has not, here is the place where it is tested."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests"

ELSEWHERE = {
    "cudagraph_doctor/__main__.py": "test_cli.py",
    "cudagraph_doctor/audit/job.py": "test_audit_command.py",
    "cudagraph_doctor/graph/backend.py": "graph/test_watch.py",
    "cudagraph_doctor/graph/emulation/not_refused.py": "graph/test_conformance.py",
    "cudagraph_doctor/graph/fields.py": "graph/test_nodes.py",
    "cudagraph_doctor/graph/functions.py": "graph/test_nodes_gpu.py",
    "cudagraph_doctor/graph/illegal.py": "graph/test_legality.py",
    "cudagraph_doctor/graph/model.py": "graph/test_nodes.py",
    "cudagraph_doctor/measuring/captures.py": "measuring/test_measure.py",
    "cudagraph_doctor/measuring/clock.py": "measuring/test_measure.py",
    "cudagraph_doctor/measuring/collect.py": "measuring/test_measure.py",
    "cudagraph_doctor/measuring/pools.py": "measuring/test_measure.py",
    "cudagraph_doctor/observation/model.py": "observation/test_judging.py",
    "cudagraph_doctor/observation/records.py": "observation/test_session.py",
    "cudagraph_doctor/progress.py": "test_worker.py",
    "cudagraph_doctor/replays/model.py": "replays/test_plain.py",
    "cudagraph_doctor/rules.py": "docs/test_rule_pages.py",
    "cudagraph_doctor/skeletons/repro_engine.py": "replays/test_repro.py",
    "cudagraph_doctor/skeletons/repro_loop.py": "replays/test_repro.py",
    "cudagraph_doctor/target.py": "test_contract.py",
    "cudagraph_doctor/traces/source.py": "traces/test_collect.py",
    "checks/__init__.py": "checks/test_table.py",
    "reference_models/faulty_copies.py": "reference_models/test_faulty_capture.py",
    "reference_models/faulty_neighbours.py": "reference_models/test_faulty_capture.py",
    "reference_models/faulty_start.py": "reference_models/test_faulty_capture.py",
    "reference_models/faulty_streams.py": "reference_models/test_faulty_capture.py",
    "reference_models/key_faults.py": "reference_models/test_faulty_keys.py",
    "reference_models/triton_kernels.py": "reference_models/test_by_value.py",
}
"""Module that is tested by more than its own file -> where (below tests/)."""


def modules() -> list[str]:
    """All modules with code of their own (an `__init__.py` with a docstring and a guard has none)."""
    found = []
    for folder in ("cudagraph_doctor", "checks", "reference_models"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            defines = (ast.FunctionDef, ast.ClassDef)
            if file.name != "__init__.py" or any(isinstance(n, defines) for n in ast.parse(file.read_text()).body):
                found.append(file.relative_to(ROOT).as_posix())
    return found


def mirrored(module: str) -> bool:
    """Whether tests/ has `test_NAME.py`, or `test_NAME_SOMETHING.py`, at the module's path."""
    path = Path(module.removeprefix("cudagraph_doctor/"))
    folder = TESTS / path.parent
    return (folder / f"test_{path.stem}.py").exists() or any(folder.glob(f"test_{path.stem}_*.py"))


@pytest.mark.parametrize("module", modules())
def test_module_has_tests_at_its_path_or_is_listed(module: str) -> None:
    assert mirrored(module) or module in ELSEWHERE


@pytest.mark.parametrize(("module", "place"), ELSEWHERE.items())
def test_the_list_is_true(module: str, place: str) -> None:
    assert (ROOT / module).exists()
    assert (TESTS / place).exists()
    assert not mirrored(module), "it has tests of its own now: take it off the list"
