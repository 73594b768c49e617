"""`examples/ci` on a GPU: its own tests with real graphs, and the change that breaks it, on the line of the replay."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")]

ROOT = Path(__file__).resolve().parents[2]
FORGOTTEN = "        self.lengths[:rows].copy_(lengths)\n"


@pytest.fixture
def example(tmp_path: Path) -> Path:
    copy = tmp_path / "ci"
    shutil.copytree(ROOT / "examples" / "ci", copy, ignore=shutil.ignore_patterns("__pycache__", ".pytest_cache"))
    return copy


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    return subprocess.run(
        [sys.executable, "-m", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_its_own_tests_pass_on_real_graphs(example: Path) -> None:
    plugin = ("-p", "cudagraph_doctor.pytest_plugin", "--cudagraph-doctor-backend", "cuda")
    done = run(example, "pytest", "-q", "-p", "no:cacheprovider", *plugin)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_the_checkup_passes(example: Path) -> None:
    done = run(example, "cudagraph_doctor", "checkup", "--backend", "cuda")
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_breaks_it_is_shown_at_the_replay(example: Path) -> None:
    file = example / "decoder.py"
    text = file.read_text()
    assert text.count(FORGOTTEN) == 1
    file.write_text(text.replace(FORGOTTEN, ""))
    done = run(example, "cudagraph_doctor", "checkup", "--backend", "cuda", "--format", "json")
    assert done.returncode == 1, done.stdout + done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    [cause] = report["causes"]
    leading = [finding for outcome in report["outcomes"] for finding in outcome["findings"]][cause["leading"]]
    assert (leading["code"], leading["culprit"]["name"]) == ("CGD301", "runner.lengths")
    assert leading["location"]["code"] == "graph.replay()"
