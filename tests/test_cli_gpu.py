"""The program on a GPU, as a user runs it: the backend it chooses, and devices that are lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from cudagraph_doctor import scaffold

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")]

ENGINE = """
import torch
class target:
    def __init__(self, device):
        {made}
        self.x = torch.zeros(4, device=device)
    def reset(self): self.x.zero_()
    def step(self, i, n):
        {step}
        return self.x[:n] + 1
    def graphs(self, on): ...
"""


def diff(folder: Path, *words: str) -> tuple[int, dict[str, Any], str]:
    """Exit code, JSON report and stderr."""
    root = str(Path(__file__).resolve().parents[1])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
    done = subprocess.run(
        [sys.executable, "-m", "cudagraph_doctor", "diff", *words, "--format", "json"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr


def test_auto_chooses_the_gpu(tmp_path: Path) -> None:
    code, report, err = diff(tmp_path, "reference", "-a", "preset=tiny", "--steps", "2", "--buckets", "2")
    assert code == 0, err
    environment = report["environment"]
    assert (environment["backend"], environment["backend_reason"]) == ("cuda", "")
    assert environment["gpu"] == torch.cuda.get_device_name()
    assert environment["driver"]


@pytest.mark.parametrize("form", scaffold.FORMS)
def test_the_skeletons_are_clean(tmp_path: Path, form: str) -> None:
    scaffold.write(form, tmp_path / "my_target.py")
    code, report, err = diff(tmp_path, "my_target.py", "--steps", "4")
    assert code == 0, err + json.dumps(report.get("outcomes"))


@pytest.mark.parametrize("in_process", [[], ["--in-process"]])
def test_a_lost_device_is_inconclusive(tmp_path: Path, in_process: list[str]) -> None:
    step = "torch.zeros(4, device='cuda')[torch.tensor([10], device='cuda')]"
    (tmp_path / "lost.py").write_text(ENGINE.format(made="pass", step=step))
    code, report, err = diff(tmp_path, "lost.py", *in_process)
    assert code == 3, err
    [outcome] = report["outcomes"]
    assert "The process was lost" in outcome["reason"]
    assert "device-side assert" in outcome["reason"]


def test_too_large_a_target_is_inconclusive(tmp_path: Path) -> None:
    (tmp_path / "large.py").write_text(ENGINE.format(made="torch.empty(1 << 50, device=device)", step="pass"))
    code, report, err = diff(tmp_path, "large.py")
    assert code == 3, err
    assert "not enough memory" in report["outcomes"][0]["reason"]
