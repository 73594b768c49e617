"""The program on the bundled model, emulated, as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

MODEL = ["-a", "preset=tiny", "--backend", "emulated", "--buckets", "2"]
SMALL = [*MODEL, "--steps", "2"]


def doctor(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, [str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, "-m", "cudagraph_doctor", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_the_bundled_model_is_clean(tmp_path: Path) -> None:
    done = doctor(tmp_path, "diff", *SMALL)
    assert done.returncode == 0, done.stderr
    assert "Emulated on the CPU" in done.stdout
    assert "Clean: nothing wrong was found" in done.stdout
    assert "Not checked:" in done.stdout
    assert os.listdir(tmp_path) == []


def test_a_planted_fault_is_found_by_name(tmp_path: Path) -> None:
    done = doctor(
        tmp_path, "diff", "reference", *SMALL, "--fault", "slot-mapping-not-copied", "--format", "json=run.json"
    )
    assert done.returncode == 1, done.stderr
    assert "slot_mapping" in done.stdout
    report = json.loads((tmp_path / "run.json").read_text())
    assert report["target"]["fault"] == "slot-mapping-not-copied"
    assert report["environment"]["backend"] == "emulated"
    [finding] = [f for f in report["outcomes"][0]["findings"] if f["severity"] == "error"]
    assert (finding["code"], finding["culprit"]["name"]) == ("CGD102", "slot_mapping")
    assert finding["location"]["file"].endswith("faulty_staging.py")
    again = doctor(tmp_path, "report", "run.json")
    assert again.stdout == done.stdout


def test_all_illegal_operations_are_listed_in_one_run(tmp_path: Path) -> None:
    done = doctor(
        tmp_path, "capture", "reference", *MODEL, "--fault", "three-at-once", "--format", "json=run.json", "--verbose"
    )
    assert done.returncode == 1, done.stderr
    report = json.loads((tmp_path / "run.json").read_text())
    [outcome] = report["outcomes"]
    assert [finding["code"] for finding in outcome["findings"]] == ["CGD201", "CGD202", "CGD204"]
    assert "plain torch shows" in done.stdout and "told by: the call that raised" in done.stdout
    assert doctor(tmp_path, "report", "run.json", "--verbose").stdout == done.stdout
    twin = doctor(tmp_path, "capture", "reference", *MODEL, "--fault", "three-at-once", "--twin")
    assert twin.returncode == 0 and "Clean: nothing wrong was found" in twin.stdout


HANGS = """
import threading

import torch


class Target:
    buckets = [1]
    lock = threading.Lock()

    def next_inputs(self, step, n):
        return torch.zeros(n)

    def forward(self, x):
        if torch.cuda.is_current_stream_capturing():
            self.lock.acquire()  # twice, and nobody lets go
            self.lock.acquire()
        return x + 1

    def reset(self):
        pass


def target(device):
    return Target()
"""


def test_a_capture_that_hangs_is_ended_with_its_stacks(tmp_path: Path) -> None:
    (tmp_path / "hangs.py").write_text(HANGS)
    done = doctor(tmp_path, "capture", "hangs.py", "--backend", "emulated", "--timeout", "12", "--debug")
    assert done.returncode == 3, done.stderr
    assert "not finished after 12 s" in done.stdout and "a capture as it is" in done.stdout
    assert 'hangs.py", line' in done.stdout and "in forward" in done.stdout
